import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/** Counts every record, as package ledger of the Go arms does, and does the handler's work. */
final class Ledger {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Task task;
    private final AtomicIntegerArray[] seen;
    private final AtomicLong strange = new AtomicLong();
    private final AtomicLong running = new AtomicLong();
    private final AtomicLong peak = new AtomicLong();
    private final AtomicLong slept = new AtomicLong();

    private volatile boolean started;
    private long begun;
    private long cpuThen;
    private volatile boolean complete;
    private volatile String error;
    private long ended;
    private long cpuEnd;

    Ledger(Task task) {
        this.task = task;
        seen = new AtomicIntegerArray[task.ends.length];
        for (int p = 0; p < seen.length; p++) {
            seen[p] = new AtomicIntegerArray((int) task.ends[p]);
        }
    }

    /** The handler. */
    void handle(int partition, long offset, byte[] value) {
        begin();
        if (task.latency != 0) {
            sleep(value);
        }
        if (partition >= seen.length || offset >= task.ends[partition]) {
            strange.incrementAndGet();
        } else {
            seen[partition].getAndIncrement((int) offset);
        }
    }

    void begin() {
        if (!started) {
            start();
        }
    }

    private synchronized void start() {
        if (!started) {
            begun = System.nanoTime();
            cpuThen = SYSTEM.getProcessCpuTime();
            started = true;
        }
    }

    private void sleep(byte[] value) {
        long n = running.incrementAndGet();
        if (n > peak.get()) {
            peak.accumulateAndGet(n, Math::max);
        }
        long nanos = task.latency > 0 ? task.latency : recorded(value);
        long from = System.nanoTime();
        for (long left = nanos; left > 0; left = from + nanos - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
        slept.addAndGet(System.nanoTime() - from);
        running.decrementAndGet();
    }

    private static long recorded(byte[] value) {
        long n = 0;
        for (int i = 0; i < 8; i++) {
            n = n << 8 | value[i] & 0xff;
        }
        return n;
    }

    boolean finished() {
        return complete || error != null;
    }

    /** Starts looking for the end. */
    void watch() {
        Thread watch = new Thread(this::look, "ledger");
        watch.setDaemon(true);
        watch.start();
    }

    private void look() {
        int[] upTo = new int[seen.length];
        long moved = System.nanoTime();
        for (;;) {
            int missing = 0;
            boolean progress = false;
            for (int p = 0; p < seen.length; p++) {
                int i = upTo[p];
                while (i < seen[p].length() && seen[p].get(i) > 0) {
                    i++;
                }
                progress |= i > upTo[p];
                upTo[p] = i;
                if (i < seen[p].length()) {
                    missing++;
                }
            }
            long now = System.nanoTime();
            if (missing == 0) {
                end();
                return;
            }
            if (progress) {
                moved = now;
            } else if (now - moved > task.patienceMillis * 1_000_000) {
                fail("no record for " + task.patienceMillis / 1000 + "s");
                return;
            }
            LockSupport.parkNanos(1_000_000);
        }
    }

    /** Says that everything was handled, for arms whose end is not seen by the watch. */
    void end() {
        ended = System.nanoTime();
        cpuEnd = SYSTEM.getProcessCpuTime();
        complete = true;
    }

    void fail(String why) {
        error = why;
    }

    /** The outcome, in the parent's words. */
    String outcome() {
        long distinct = 0;
        long again = 0;
        for (AtomicIntegerArray partition : seen) {
            for (int i = 0; i < partition.length(); i++) {
                int n = partition.get(i);
                if (n > 0) {
                    distinct++;
                    again += n - 1;
                }
            }
        }
        return line(distinct, again, false);
    }

    /** The outcome of an arm that only counts. */
    String outcomeCounted(long records) {
        return line(Math.min(records, task.records()), Math.max(records - task.records(), 0), true);
    }

    /** The most memory this process had, in bytes; 0 where the kernel does not say. */
    private static long maxRSS() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("\\D", "")) << 10;
                }
            }
        } catch (IOException e) {
            // not Linux
        }
        return 0;
    }

    private String line(long distinct, long again, boolean countedOnly) {
        StringBuilder s = new StringBuilder("{\"distinct\":").append(distinct)
                .append(",\"again\":").append(again)
                .append(",\"strange\":").append(strange.get())
                .append(",\"counted_only\":").append(countedOnly)
                .append(",\"handler_ns\":").append(slept.get())
                .append(",\"peak\":").append(peak.get())
                .append(",\"rss\":").append(maxRSS())
                .append(",\"seconds\":").append(complete && started ? (ended - begun) / 1e9 : 0)
                .append(",\"cpu_ns\":").append(complete && started ? cpuEnd - cpuThen : 0);
        if (error != null) {
            s.append(",\"error\":\"").append(error.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ")).append('"');
        }
        return s.append('}').toString();
    }
}
