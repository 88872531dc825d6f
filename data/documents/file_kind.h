// File kinds that are not read as text, recognised by name and first bytes, each with the command that makes text of it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// The remedy for files of token ids.
inline constexpr auto kTokensRemedy = "if it holds tokens, `trireme data import` takes it";

// The reason why a file of this name is not read as text, with the remedy; empty for any other name, and, but for tables, if it
// begins as a text. `path` is without .gz and the like (unpacked_name); `begin`: the first bytes, more than 1024 if there are.
std::string refusal_of_name(std::string_view path, std::string_view begin);

// Likewise by the first bytes alone, whatever the name.
std::string refusal_of_bytes(std::string_view begin);

// Likewise for JSON lines: if no line of `begin` is a JSON object. `whole`: `begin` is all there is. `rename` is the remedy if the
// file is plain text.
std::string refusal_of_lines(std::string_view begin, bool whole, const std::string& rename);

}  // namespace trireme
