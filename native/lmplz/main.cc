// lmplz: estimates a language model with modified Kneser-Ney smoothing by KenLM's own pipeline.
// KenLM's main reads its options with Boost.Program_options; this one needs only the standard library.
// Exit status: 0 a model was written, 1 it could not be, 2 the command line makes no sense.

#include "lm/builder/output.hh"
#include "lm/builder/pipeline.hh"
#include "lm/lm_exception.hh"
#include "util/exception.hh"
#include "util/file.hh"
#include "util/usage.hh"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

#define TEXT_OF(macro) TEXT(macro)
#define TEXT(value) #value

const char kHelp[] =
    "Usage: lmplz -o ORDER [OPTION]... < text > model.arpa\n"
    "\n"
    "Estimates a language model with modified Kneser-Ney smoothing from text, one sentence a\n"
    "line, words separated by blanks. Works on disk: set the memory and the temporary folder.\n"
    "\n"
    "  -o, --order N            order of the model, 2 to " TEXT_OF(KENLM_MAX_ORDER) " (required)\n"
    "  -S, --memory SIZE        memory for sorting (default: 1G)\n"
    "  -T, --temp_prefix PATH   folder, or prefix, of the temporary files (default: $TMPDIR or /tmp)\n"
    "      --text FILE          read the text from FILE, not from standard input\n"
    "      --arpa FILE          write the model to FILE, not to standard output\n"
    "      --vocab_estimate N   expected number of distinct words (default: 1000000); sizes tables\n"
    "      --prune N [N]...     drop n-grams with a count of at most N: one value for each order\n"
    "                           from 1 up, never decreasing, the last for all higher orders\n"
    "      --limit_vocab_file FILE\n"
    "                           drop n-grams with a word that is not among the words of FILE\n"
    "      --discount_fallback [D1 [D2 [D3]]]\n"
    "                           discounts for counts 1, 2 and 3 or more of those orders whose own\n"
    "                           cannot be estimated, as in small texts (default: 0.5 1 1.5);\n"
    "                           without this option such a text is an error\n"
    "      --skip_symbols       read <s>, </s> and <unk> in the text as blanks; without this\n"
    "                           option they are an error\n"
    "  -h, --help               show this text\n"
    "\n"
    "An option's single value can also follow an equals sign: --order=5. SIZE is a number and one\n"
    "of b K M G T P E % (of the machine's memory); K when it has none.\n"
    "\n"
    "The method: Heafield, Pouzyrevsky, Clark and Koehn, Scalable Modified Kneser-Ney Language\n"
    "Model Estimation, ACL 2013.\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

UsageError BadValue(const std::string &option, const std::string &value, const std::string &wanted) {
  return UsageError(option + " '" + value + "': " + wanted);
}

uint64_t ParseCount(const std::string &option, const std::string &value, uint64_t lowest, uint64_t highest) {
  char *end = nullptr;
  errno = 0;
  const bool digit_first = !value.empty() && value[0] >= '0' && value[0] <= '9';
  const uint64_t count = digit_first ? std::strtoull(value.c_str(), &end, 10) : 0;
  if (!digit_first || *end || errno == ERANGE || count < lowest || count > highest) {
    throw BadValue(option, value,
                   "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest) + " is needed");
  }
  return count;
}

// KenLM's util::ParseSize refuses fractions and takes negative sizes.
std::size_t ParseSize(const std::string &option, const std::string &value) {
  const std::string units = "bKMGTPE";
  char *end = nullptr;
  double size = std::strtod(value.c_str(), &end);
  const std::string unit = *end ? end : "K";
  if (unit == "%") {
    const uint64_t memory = util::GuessPhysicalMemory();
    if (!memory) throw BadValue(option, value, "the machine's memory is not known; give a number of bytes");
    size *= static_cast<double>(memory) / 100.0;
  } else {
    const std::size_t power = unit == "k" ? 1 : units.find(unit);
    if (unit.size() != 1 || power == std::string::npos) {
      throw BadValue(option, value, "the unit is one of b K M G T P E %");
    }
    for (std::size_t i = 0; i < power; ++i) size *= 1024.0;
  }
  if (end == value.c_str() || !(size >= 1.0 && size < static_cast<double>(std::numeric_limits<std::size_t>::max()))) {
    throw BadValue(option, value, "a size above 0 that this machine can address is needed");
  }
  return static_cast<std::size_t>(size);
}

std::vector<uint64_t> ParsePrune(const std::vector<std::string> &values, std::size_t order) {
  std::vector<uint64_t> thresholds;
  for (const std::string &value : values) {
    const uint64_t threshold = ParseCount("--prune", value, 0, std::numeric_limits<uint64_t>::max());
    if (!thresholds.empty() && threshold < thresholds.back()) {
      throw BadValue("--prune", value, "the thresholds must not decrease");
    }
    thresholds.push_back(threshold);
  }
  if (thresholds.size() > order) {
    throw UsageError("--prune has " + std::to_string(thresholds.size()) + " thresholds, but the order is " +
                     std::to_string(order));
  }
  thresholds.resize(order, thresholds.empty() ? 0 : thresholds.back());
  return thresholds;
}

lm::builder::Discount ParseFallback(std::vector<std::string> values) {
  if (values.empty()) values = {"0.5", "1", "1.5"};
  if (values.size() > 3) throw UsageError("--discount_fallback has more than three values");
  lm::builder::Discount discount;
  discount.amount[0] = 0.0f;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string &value = values[i < values.size() ? i : values.size() - 1];
    char *end = nullptr;
    const float amount = std::strtof(value.c_str(), &end);
    if (end == value.c_str() || *end || !(amount >= 0.0f && amount <= static_cast<float>(i + 1))) {
      const std::string count = std::to_string(i + 1);
      throw BadValue("--discount_fallback", value, "the discount of count " + count + " lies in 0 to " + count);
    }
    discount.amount[i + 1] = amount;
  }
  return discount;
}

struct Job {
  lm::builder::PipelineConfig config;
  std::string text;
  std::string arpa;
  bool help = false;
};

// What KenLM's main sets where no option says otherwise, but for the memory: it takes 80% of the machine's,
// which is not the container's, and fills gigabytes of tables for a text of two lines.
lm::builder::PipelineConfig Defaults() {
  lm::builder::PipelineConfig config;
  config.order = 0;
  config.sort.temp_prefix = util::DefaultTempDirectory();
  config.sort.total_memory = 1 << 30;
  config.sort.buffer_size = 64 << 20;
  config.initial_probs.interpolate_unigrams = true;
  config.initial_probs.adder_in.total_memory = 32768;
  config.initial_probs.adder_in.block_count = 2;
  config.initial_probs.adder_out = config.initial_probs.adder_in;
  config.read_backoffs = config.initial_probs.adder_out;
  config.vocab_estimate = 1000000;
  config.minimum_block = 8 << 10;
  config.block_count = 2;
  config.prune_vocab = false;
  config.renumber_vocabulary = false;
  config.discount.fallback = lm::builder::Discount();
  config.discount.bad_action = lm::THROW_UP;
  config.output_q = false;
  config.vocab_size_for_unk = 0;
  config.disallowed_symbol_action = lm::THROW_UP;
  return config;
}

// The command line, word by word: "--order=5" comes as the option "--order" and the value "5".
class Words {
 public:
  Words(int argc, char **argv) : words_(argv + 1, argv + argc), at_(0) {}

  bool Next(std::string &option) {
    if (at_ == words_.size()) return false;
    option = words_[at_++];
    const std::size_t equals = option.find('=');
    if (option.compare(0, 2, "--") == 0 && equals != std::string::npos) {
      words_[--at_] = option.substr(equals + 1);
      option.resize(equals);
      attached_ = true;
    }
    return true;
  }

  std::string Value(const std::string &option) {
    if (at_ == words_.size() || (!attached_ && IsOption(words_[at_]))) throw UsageError(option + " needs a value");
    attached_ = false;
    return words_[at_++];
  }

  std::vector<std::string> Values() {
    std::vector<std::string> values;
    attached_ = false;
    while (at_ < words_.size() && !IsOption(words_[at_])) values.push_back(words_[at_++]);
    return values;
  }

  void NoValue(const std::string &option) const {
    if (attached_) throw UsageError(option + " takes no value");
  }

 private:
  // "-1" is a value: a wrong one, and that is what the message should say.
  static bool IsOption(const std::string &word) {
    return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
  }

  std::vector<std::string> words_;
  std::size_t at_;
  bool attached_ = false;
};

Job ParseCommandLine(int argc, char **argv) {
  Job job;
  job.config = Defaults();
  std::vector<std::string> prune;
  Words words(argc, argv);
  for (std::string option; words.Next(option);) {
    if (option == "-h" || option == "--help") {
      words.NoValue(option);
      job.help = true;
      return job;
    } else if (option == "-o" || option == "--order") {
      job.config.order = ParseCount(option, words.Value(option), 2, KENLM_MAX_ORDER);
    } else if (option == "-S" || option == "--memory") {
      job.config.sort.total_memory = ParseSize(option, words.Value(option));
    } else if (option == "-T" || option == "--temp_prefix") {
      job.config.sort.temp_prefix = words.Value(option);
    } else if (option == "--text") {
      job.text = words.Value(option);
    } else if (option == "--arpa") {
      job.arpa = words.Value(option);
    } else if (option == "--vocab_estimate") {
      job.config.vocab_estimate =
          ParseCount(option, words.Value(option), 1, std::numeric_limits<lm::WordIndex>::max());
    } else if (option == "--prune") {
      prune = words.Values();
      if (prune.empty()) throw UsageError(option + " needs a value");
    } else if (option == "--limit_vocab_file") {
      job.config.prune_vocab_file = words.Value(option);
      job.config.prune_vocab = true;
    } else if (option == "--discount_fallback") {
      job.config.discount.fallback = ParseFallback(words.Values());
      job.config.discount.bad_action = lm::COMPLAIN;
    } else if (option == "--skip_symbols") {
      words.NoValue(option);
      job.config.disallowed_symbol_action = lm::COMPLAIN;
    } else {
      throw UsageError("unknown option '" + option + "'");
    }
  }
  if (!job.config.order) throw UsageError("the option -o is required");
  job.config.prune_thresholds = ParsePrune(prune, job.config.order);
  util::NormalizeTempPrefix(job.config.sort.temp_prefix);
  return job;
}

// Of a text without a word KenLM would write a model that knows none, without a complaint.
class PrintModel : public lm::builder::PrintHook {
 public:
  explicit PrintModel(int file) : PrintHook(file, false) {}

  void Sink(const lm::builder::HeaderInfo &header, int vocabulary, util::stream::Chains &chains) override {
    if (!header.token_count) {
      util::Exception error;
      error << "lmplz: there is no word in " << (header.input_file.empty() ? "the text" : header.input_file);
      throw error;
    }
    PrintHook::Sink(header, vocabulary, chains);
  }
};

void Estimate(Job &job) {
  // The pipeline opens this file only after it has read the whole text.
  if (job.config.prune_vocab) util::scoped_fd(util::OpenReadOrThrow(job.config.prune_vocab_file.c_str()));
  util::scoped_fd in(job.text.empty() ? STDIN_FILENO : util::OpenReadOrThrow(job.text.c_str()));
  util::scoped_fd out(job.arpa.empty() ? STDOUT_FILENO : util::CreateOrThrow(job.arpa.c_str()));
  lm::builder::Output output(job.config.sort.temp_prefix, false, job.config.output_q);
  output.Add(new PrintModel(out.release()));
  lm::builder::Pipeline(job.config, in.release(), output);
}

// KenLM's threads print what went wrong and abort. For the caller that is a failure like any other, not a
// crash that leaves a core file.
extern "C" void FailOnAbort(int) { _exit(1); }

}  // namespace

int main(int argc, char **argv) {
  std::signal(SIGABRT, FailOnAbort);
  try {
    Job job = ParseCommandLine(argc, argv);
    if (job.help) {
      std::cout << kHelp;
      return 0;
    }
    Estimate(job);
    util::PrintUsage(std::cerr);
    return 0;
  } catch (const UsageError &error) {
    std::cerr << "lmplz: " << error.what() << " (lmplz --help lists the options)" << std::endl;
    return 2;
  } catch (const std::exception &error) {
    std::cerr << "lmplz: " << error.what() << std::endl;
    return 1;
  }
}
