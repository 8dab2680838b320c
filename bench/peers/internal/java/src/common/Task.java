import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What one run of an arm is to do; package task of the parent writes it. */
final class Task {
    final String mode;
    final String bootstrap;
    final String topic;
    final String group;
    final long[] ends;
    final int workers;
    final long latency;
    final long patienceMillis;

    Task(String[] args) {
        Map<String, String> all = new HashMap<>();
        for (String arg : args) {
            int at = arg.indexOf('=');
            all.put(arg.substring(0, at), arg.substring(at + 1));
        }
        mode = all.get("mode");
        bootstrap = all.get("bootstrap");
        topic = all.get("topic");
        group = all.get("group");
        String[] words = all.get("ends").split(",");
        ends = new long[words.length];
        for (int p = 0; p < ends.length; p++) {
            ends[p] = Long.parseLong(words[p]);
        }
        workers = Integer.parseInt(all.get("workers"));
        latency = Long.parseLong(all.get("latency"));
        patienceMillis = Long.parseLong(all.get("patience"));
    }

    long records() {
        long n = 0;
        for (long end : ends) {
            n += end;
        }
        return n;
    }

    /** The settings that every consumer of ours has; the rest are Kafka's defaults. */
    Properties properties() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("group.id", group);
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return p;
    }

    KafkaConsumer<byte[], byte[]> consumer(boolean autoCommit) {
        Properties p = properties();
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", Boolean.toString(autoCommit));
        p.put("auto.commit.interval.ms", "1000");
        return new KafkaConsumer<>(p);
    }
}
