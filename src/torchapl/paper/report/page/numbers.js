/* The numbers of a run and how they are written. */

const NAMES = {
  test_error: "Test error, %",
  test_auc: "Test AUC",
  test_loss: "Test loss",
  train_loss: "Training loss",
  train_error: "Training error, %",
  valid_error: "Validation error, %",
  valid_auc: "Validation AUC",
  test_significance_histogram: "Significance, sigma",
};

/** What a reader is shown in place of a number's name. */
export function nameOf(number) {
  const words = number.replaceAll("_", " ");
  return NAMES[number] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** The value with three digits and a real minus sign. */
export function text(value) {
  if (!Number.isFinite(value)) return "not finite";
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
