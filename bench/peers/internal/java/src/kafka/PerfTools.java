import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.tools.ConsumerPerformance;
import org.apache.kafka.tools.ShareConsumerPerformance;

/** Kafka's own performance tools, run as they are and watched from the same process. */
final class PerfTools {
    private PerfTools() {}

    /** consumer runs ConsumerPerformance. An interceptor sees what it is given, a batch at a time. */
    static String consumer(Task task, Ledger ledger) {
        Watcher.task = task;
        Watcher.ledger = ledger;
        Watcher.next = new long[task.ends.length];
        ConsumerPerformance.main(new String[] {
            "--bootstrap-server", task.bootstrap, "--topic", task.topic, "--group", task.group,
            "--num-records", Long.toString(task.records()), "--hide-header",
            "--timeout", Long.toString(task.patienceMillis),
            "--command-property", "auto.commit.interval.ms=1000",
            "--command-property", "interceptor.classes=" + Watcher.class.getName(),
        });
        if (Watcher.gap != null) {
            ledger.fail(Watcher.gap);
        } else if (Watcher.count < task.records()) {
            ledger.fail("the tool stopped after " + Watcher.count + " of " + task.records() + " records");
        }
        return ledger.outcomeCounted(Watcher.count);
    }

    /** Watcher sees that every partition's records come without a gap and once, at the cost of a few instructions a batch. */
    public static final class Watcher implements ConsumerInterceptor<byte[], byte[]> {
        static Task task;
        static Ledger ledger;
        static long[] next;
        static long count;
        static String gap;

        @Override
        public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
            ledger.begin();
            for (TopicPartition p : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> some = records.records(p);
                long first = some.get(0).offset();
                long last = some.get(some.size() - 1).offset();
                if (first != next[p.partition()] || last - first + 1 != some.size()) {
                    gap = p + ": records " + first + " to " + last + " (" + some.size() + ") came where " + next[p.partition()] + " was next";
                }
                next[p.partition()] = last + 1;
                count += some.size();
            }
            if (count >= task.records()) {
                ledger.end();
            }
            return records;
        }

        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    /** share runs ShareConsumerPerformance. Share consumers take no interceptor: their own metric says how many records came. */
    static String share(Task task, Ledger ledger) throws Exception {
        MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
        long[] seen = new long[1];
        Thread watch = new Thread(() -> {
            ObjectName name = null;
            while (!ledger.finished()) {
                try {
                    if (name == null) {
                        for (ObjectName found : beans.queryNames(new ObjectName("kafka.consumer:type=consumer-share-fetch-manager-metrics,client-id=*"), null)) {
                            name = found;
                        }
                    } else {
                        long n = ((Number) beans.getAttribute(name, "records-consumed-total")).longValue();
                        if (n > 0) {
                            ledger.begin();
                            seen[0] = n;
                        }
                        if (n >= task.records()) {
                            ledger.end();
                            return;
                        }
                    }
                } catch (Exception e) {
                    name = null; // the consumer is being made or closed
                }
                LockSupport.parkNanos(1_000_000);
            }
        }, "watch");
        watch.setDaemon(true);
        watch.start();
        ShareConsumerPerformance.main(new String[] {
            "--bootstrap-server", task.bootstrap, "--topic", task.topic, "--group", task.group,
            "--num-records", Long.toString(task.records()), "--hide-header",
            "--timeout", Long.toString(task.patienceMillis),
        });
        if (!ledger.finished()) {
            ledger.fail("the tool stopped after " + seen[0] + " of " + task.records() + " records");
        }
        return ledger.outcomeCounted(seen[0]);
    }
}
