package dpbeam;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.Row;
import org.apache.beam.sdk.values.TypeDescriptors;

/** The other kinds of release in one pipeline; writes a file of lines for each, its values between tabs. */
public class EveryKind {
  static final int AGENTS = 200;

  public static void main(String[] args) {
    SelectQueries.Options options =
        PipelineOptionsFactory.fromArgs(args).withValidation().as(SelectQueries.Options.class);
    Pipeline pipeline = Pipeline.create(options);
    PCollection<Row> logs = SelectQueries.logs(pipeline, options);

    Map<String, Object> pairs = Map.of("user", "user_id", "item", "query");
    List<String> domain = new ArrayList<>(List.of("query 1", "query 3", "nobody's"));
    release(options, logs, "TopKItems", pairs, Map.of("k", 2, "noisy_counts", true));
    release(options, logs, "HittingSet", pairs, Map.of("k", 2, "pairs", 1000));
    release(options, logs, "CountItems", pairs, Map.of("domain", domain));

    Map<String, Object> supplies = new HashMap<>(Map.of("beds", 150.0));
    release(
        options,
        agents(pipeline),
        "Packing",
        Map.of("agent", "patient", "num_agents", AGENTS),
        Map.of("supplies", supplies, "alpha", 0.3, "allow_small_supply", true));
    pipeline.run().waitUntilFinish();
  }

  static PCollection<Row> agents(Pipeline pipeline) {
    Schema schema =
        Schema.builder().addStringField("patient").addDoubleField("value").addDoubleField("beds").build();
    List<Row> rows = new ArrayList<>();
    for (int n = 0; n < AGENTS; n++) {
      rows.add(Row.withSchema(schema).addValues("a" + n, 0.25 + n % 3 / 4.0, 1.0).build());
    }
    return pipeline.apply("Agents", Create.of(rows).withRowSchema(schema));
  }

  static void release(
      SelectQueries.Options options,
      PCollection<Row> input,
      String transform,
      Map<String, Object> columns,
      Map<String, Object> settings) {
    Map<String, Object> arguments = new HashMap<>(columns);
    arguments.putAll(settings);
    arguments.putAll(Map.of("epsilon", 1.0, "delta", 1e-6, "run_folder", options.getRunFolder()));
    arguments.put("insecure_test_key", options.getTestKey());
    input
        .apply(
            transform,
            PythonExternalTransform.<PCollection<Row>, PCollection<Row>>from(
                    "dpbeam." + transform, options.getExpansionService())
                .withKwargs(arguments)
                .withTypeHint(ArrayList.class, Schema.FieldType.array(Schema.FieldType.STRING))
                .withTypeHint(
                    HashMap.class, Schema.FieldType.map(Schema.FieldType.STRING, Schema.FieldType.DOUBLE)))
        .apply(
            "Lines of " + transform,
            MapElements.into(TypeDescriptors.strings())
                .via((Row row) -> String.join("\t", row.getValues().stream().map(String::valueOf).toList())))
        .apply("Write " + transform, TextIO.write().to(options.getOutput() + "." + transform).withoutSharding());
  }
}
