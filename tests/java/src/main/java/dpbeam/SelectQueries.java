package dpbeam;

import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.Validation;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.Row;
import org.apache.beam.sdk.values.TypeDescriptors;

/** Releases the queries that many users have, of a file with lines "user,query". */
public class SelectQueries {
  public interface Options extends PipelineOptions {
    @Description("A text file, a line for each pair: user,query")
    @Validation.Required
    String getInput();

    void setInput(String value);

    @Description("Prefix of the output")
    @Validation.Required
    String getOutput();

    void setOutput(String value);

    @Description("host:port of the expansion service")
    @Validation.Required
    String getExpansionService();

    void setExpansionService(String value);

    @Description("A folder that all workers reach, for the private files of the run")
    @Validation.Required
    String getRunFolder();

    void setRunFolder(String value);

    @Description("A fixed key, for tests alone")
    String getTestKey();

    void setTestKey(String value);
  }

  static PCollection<Row> logs(Pipeline pipeline, Options options) {
    Schema pairs = Schema.builder().addStringField("user_id").addStringField("query").build();
    return pipeline
        .apply(TextIO.read().from(options.getInput()))
        .apply(
            MapElements.into(TypeDescriptors.rows())
                .via(line -> Row.withSchema(pairs).addValues((Object[]) line.split(",")).build()))
        .setRowSchema(pairs);
  }

  public static void main(String[] args) {
    Options options = PipelineOptionsFactory.fromArgs(args).withValidation().as(Options.class);
    Pipeline pipeline = Pipeline.create(options);
    PCollection<Row> logs = logs(pipeline, options);

    PythonExternalTransform<PCollection<Row>, PCollection<Row>> select =
        PythonExternalTransform.<PCollection<Row>, PCollection<Row>>from(
                "dpbeam.SelectPartitions", options.getExpansionService())
            .withKwarg("epsilon", 1.0)
            .withKwarg("delta", 1e-6)
            .withKwarg("user", "user_id")
            .withKwarg("item", "query")
            .withKwarg("noisy_counts", true)
            .withKwarg("run_folder", options.getRunFolder());
    if (options.getTestKey() != null) {
      select = select.withKwarg("insecure_test_key", options.getTestKey());
    }

    logs.apply(select)
        .apply(
            MapElements.into(TypeDescriptors.strings())
                .via((Row row) -> row.getString("query") + "," + row.getInt64("noisy_count")))
        .apply(TextIO.write().to(options.getOutput()).withoutSharding());
    pipeline.run().waitUntilFinish();
  }
}
