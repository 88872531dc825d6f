// SentencePiece (Kudo and Richardson 2018), by its own library: BPE and unigram models as .model files.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// Texts become what SentencePiece makes of them: normalised, a space in front, if the model says so. Symbols that the user has
// defined are found in the text, control symbols ("</s>") never. The library is given parts of a text, between which no piece is:
// words for BPE, which are remembered, 64 KiB for unigram. The ids are the same, but that in a longer text a unigram model may be
// cut another way that scores as well or better: the library adds the scores of all that is in front in f32.
//
// decode gives what the library's does, but for bytes that are not UTF-8, which stay themselves. decode(encode(x)) == x where the
// model keeps characters (identity), keeps spaces, falls back to bytes, and x is UTF-8 without U+2581, as with Llama 2's; with
// others it is x as normalised, " \u2047 " where a character is unknown. Shards' bytes of text, and so bits per byte, are those of
// what decode gives.
//
// The control symbol that the model names as its end of a text ends documents. Several threads may encode at once. DataError where
// there is none, or the library refuses the model.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceModel& model, const std::string& name);

}  // namespace trireme
