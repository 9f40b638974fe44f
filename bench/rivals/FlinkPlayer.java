import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A player on Flink: reads a log topic, cuts each transaction by target, and writes the parts to the shards' partitions
 * through Flink's transactional sink. What it writes is shown when a checkpoint completes.
 *
 * <p>Arguments: bootstrap, log topic, shard topic, number of targets, checkpoint interval in ms, checkpoint folder.
 */
public final class FlinkPlayer {
    private static final int HEAD = 4 + 8 + 8; // Target, transaction, when it was taken from the log.

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String wal = arguments[1];
        String shards = arguments[2];
        int targets = Integer.parseInt(arguments[3]);

        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", arguments[4] + " ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[5]);
        settings.setString("execution.buffer-timeout.interval", "0 ms");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "none");
        settings.setString("rest.port", "0");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);

        KafkaSource<byte[]> source =
                KafkaSource.<byte[]>builder()
                        .setBootstrapServers(bootstrap)
                        .setTopics(wal)
                        .setGroupId(wal + "-flink")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setDeserializer(new Cut(targets))
                        .setProperty("isolation.level", "read_committed")
                        .setProperty("fetch.min.bytes", "1")
                        .build();
        Properties producer = new Properties();
        producer.setProperty("acks", "all");
        producer.setProperty("linger.ms", "0");
        producer.setProperty("transaction.timeout.ms", "60000");
        KafkaSink<byte[]> sink =
                KafkaSink.<byte[]>builder()
                        .setBootstrapServers(bootstrap)
                        .setRecordSerializer(new Route(shards))
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(shards)
                        .setTransactionNamingStrategy(TransactionNamingStrategy.POOLING)
                        .setKafkaProducerConfig(producer)
                        .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "log").sinkTo(sink);

        JobClient job = environment.executeAsync("player");
        while (job.getJobStatus().get() != JobStatus.RUNNING) {
            Thread.sleep(20);
        }
        System.out.println("ready");
        System.out.flush();
        job.getJobExecutionResult().get();
    }

    /** One element for each target that a transaction concerns. */
    private static final class Cut implements KafkaRecordDeserializationSchema<byte[]> {
        private final int targets;

        Cut(int targets) {
            this.targets = targets;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<byte[]> out) {
            long taken = System.nanoTime();
            long number = ByteBuffer.wrap(record.key()).getLong();
            byte[] payload = record.value();
            int[] lengths = new int[targets];
            int[] owners = new int[payload.length / 4 + 1];
            int[] ends = new int[payload.length / 4 + 1];
            int count = 0;
            for (int at = 0; at < payload.length; count++) {
                int[] body = varint(payload, at + 1);
                int end = body[1] + body[0];
                int[] key = varint(payload, body[1] + 1);
                CRC32 crc = new CRC32();
                crc.update(payload, key[1], key[0]);
                owners[count] = (int) (crc.getValue() % targets);
                ends[count] = end;
                lengths[owners[count]] += end - at;
                at = end;
            }
            ByteBuffer[] parts = new ByteBuffer[targets];
            for (int i = 0, start = 0; i < count; start = ends[i], i++) {
                int target = owners[i];
                if (parts[target] == null) {
                    parts[target] = ByteBuffer.allocate(HEAD + lengths[target]);
                    parts[target].putInt(target).putLong(number).putLong(taken);
                }
                parts[target].put(payload, start, ends[i] - start);
            }
            for (ByteBuffer part : parts) {
                if (part != null) {
                    out.collect(part.array());
                }
            }
        }

        /** The number at a position, and the position behind it. */
        private static int[] varint(byte[] data, int at) {
            int value = 0;
            for (int shift = 0; ; shift += 7) {
                int next = data[at++];
                value |= (next & 0x7F) << shift;
                if (next >= 0) {
                    return new int[] {value, at};
                }
            }
        }

        @Override
        public TypeInformation<byte[]> getProducedType() {
            return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
        }
    }

    /** The target is the partition; the key says which transaction it is and when it was taken from the log. */
    private static final class Route implements KafkaRecordSerializationSchema<byte[]>, KafkaDatasetFacetProvider {
        private final String topic;

        Route(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(byte[] part, KafkaSinkContext context, Long timestamp) {
            ByteBuffer buffer = ByteBuffer.wrap(part);
            int target = buffer.getInt();
            byte[] key = new byte[16];
            buffer.get(key);
            byte[] value = new byte[buffer.remaining()];
            buffer.get(value);
            return new ProducerRecord<>(topic, target, key, value);
        }

        /** The pooled transactions ask for it: these are the topics whose transactions are ours. */
        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() {
            return Optional.of(new DefaultKafkaDatasetFacet(DefaultKafkaDatasetIdentifier.ofTopics(List.of(topic))));
        }
    }
}
