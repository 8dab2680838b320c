"""aiokafka at work: one run of one arm. What it is to do comes as key=value arguments; the last line it prints is what it saw."""

import asyncio
import json
import sys
import time

from aiokafka import AIOKafkaConsumer

task = dict(word.split("=", 1) for word in sys.argv[1:])
ends = [int(end) for end in task["ends"].split(",")]
workers = int(task["workers"])
latency = int(task["latency"])
patience = int(task["patience"]) / 1000


class Ledger:
    """Counts every record and does the handler's work, as the other languages' ledgers do."""

    def __init__(self):
        self.seen = [bytearray(end) for end in ends]
        self.total = sum(ends)
        self.left = self.total
        self.again = self.strange = 0
        self.begun = self.ended = None
        self.cpu_then = self.cpu_end = 0
        self.running = self.peak = self.slept = 0

    def begin(self):
        if self.begun is None:
            self.begun, self.cpu_then = time.perf_counter_ns(), time.process_time_ns()

    def done(self, partition, offset):
        try:
            seen = self.seen[partition]
            if seen[offset]:
                self.again += 1
                return
            seen[offset] = 1
        except IndexError:
            self.strange += 1
            return
        self.left -= 1
        if not self.left:
            self.ended, self.cpu_end = time.perf_counter_ns(), time.process_time_ns()

    async def handle(self, message):
        """The handler that waits."""
        self.begin()
        self.running += 1
        if self.running > self.peak:
            self.peak = self.running
        began = time.perf_counter_ns()
        nanos = latency if latency > 0 else int.from_bytes(message.value[:8], "big")
        await asyncio.sleep(nanos / 1e9)
        self.slept += time.perf_counter_ns() - began
        self.running -= 1
        self.done(message.partition, message.offset)

    def outcome(self, error):
        complete = self.ended is not None
        found = {
            "distinct": self.total - self.left,
            "again": self.again,
            "strange": self.strange,
            "seconds": (self.ended - self.begun) / 1e9 if complete else 0,
            "cpu_ns": self.cpu_end - self.cpu_then if complete else 0,
            "handler_ns": self.slept,
            "peak": self.peak,
            "rss": max_rss(),
        }
        if error:
            found["error"] = error
        return json.dumps(found)


def max_rss():
    """The most memory this process had, in bytes; 0 where the kernel does not say."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass  # not Linux
    return 0


async def main():
    ledger = Ledger()
    consumer = AIOKafkaConsumer(
        task["topic"],
        bootstrap_servers=task["bootstrap"],
        group_id=task["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=1000,
    )
    await consumer.start()
    error = None
    moved = time.monotonic()
    try:
        while ledger.left:
            if task["mode"] == "getmany":
                batches = await consumer.getmany(timeout_ms=200)
                if batches:
                    ledger.begin()
                for messages in batches.values():
                    for message in messages:
                        ledger.done(message.partition, message.offset)
            else:  # gather: so many at once, and the next ones when all are done
                batches = await consumer.getmany(timeout_ms=200, max_records=workers)
                await asyncio.gather(*(ledger.handle(m) for some in batches.values() for m in some))
            if batches:
                moved = time.monotonic()
            elif time.monotonic() - moved > patience:
                error = f"no record for {patience:.0f}s"
                break
        await consumer.commit()
    finally:
        await consumer.stop()
    print(ledger.outcome(error))


asyncio.run(main())
