import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own clients and tools. */
public final class KafkaArm {
    private static final Duration POLL = Duration.ofMillis(100);

    public static void main(String[] args) throws Exception {
        Task task = new Task(args);
        Ledger ledger = new Ledger(task);
        String outcome;
        switch (task.mode) {
            case "poll-loop":
                outcome = pollLoop(task, ledger);
                break;
            case "perf-tool":
                outcome = PerfTools.consumer(task, ledger);
                break;
            case "java-perf-tool":
                outcome = PerfTools.share(task, ledger);
                break;
            case "java-executor":
                outcome = shareExecutor(task, ledger);
                break;
            default:
                throw new IllegalArgumentException("there is no Java arm " + task.mode);
        }
        System.out.println();
        System.out.println(outcome);
        System.out.flush();
        System.exit(0);
    }

    /** The loop of the consumer's documentation, with automatic commits. */
    private static String pollLoop(Task task, Ledger ledger) {
        ledger.watch();
        try (KafkaConsumer<byte[], byte[]> consumer = task.consumer(true)) {
            consumer.subscribe(List.of(task.topic));
            while (!ledger.finished()) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(POLL)) {
                    ledger.handle(r.partition(), r.offset(), r.value());
                }
            }
            consumer.commitSync();
        }
        return ledger.outcome();
    }

    /**
     * A share group with so many threads. Acknowledgement is implicit: a poll accepts what the one before gave, so each waits for
     * the slowest record of the one before.
     */
    private static String shareExecutor(Task task, Ledger ledger) throws Exception {
        Properties p = task.properties();
        p.put("max.poll.records", Integer.toString(Math.max(500, task.workers)));
        ExecutorService threads = Executors.newFixedThreadPool(task.workers);
        ledger.watch();
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(task.topic));
            while (!ledger.finished()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                List<Future<?>> running = new ArrayList<>(records.count());
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    running.add(threads.submit(() -> ledger.handle(r.partition(), r.offset(), r.value())));
                }
                for (Future<?> f : running) {
                    f.get();
                }
            }
            consumer.commitSync();
        }
        threads.shutdown();
        return ledger.outcome();
    }
}
