import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.locks.LockSupport;

/** Confluent's Parallel Consumer, as its README sets it up. */
public final class ParallelArm {
    public static void main(String[] args) {
        Task task = new Task(args);
        Ledger ledger = new Ledger(task);
        ParallelConsumerOptions<byte[], byte[]> options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(task.mode.toUpperCase(Locale.ROOT)))
                .maxConcurrency(task.workers)
                .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                .commitInterval(Duration.ofSeconds(1))
                .consumer(task.consumer(false))
                .build();
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(task.topic));
        ledger.watch();
        processor.poll(c -> ledger.handle(
                c.getSingleRecord().getConsumerRecord().partition(), c.offset(), c.getSingleRecord().getConsumerRecord().value()));
        while (!ledger.finished() && !processor.isClosedOrFailed()) {
            LockSupport.parkNanos(5_000_000);
        }
        if (!ledger.finished()) {
            ledger.fail("the processor ended by itself");
        }
        processor.closeDrainFirst();
        System.out.println(ledger.outcome());
        System.out.flush();
        System.exit(0);
    }
}
