// Removal of directories that this program made. It goes through descriptors of directories and
// follows no link: a link is removed itself, and its target stays. It deletes only names that the
// program makes, and only files of this user or of the directory's owner.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/io.h"

namespace trireme {

// Names of the files in a directory that are the program's own.
using OwnName = std::function<bool(const std::string& name)>;

bool is_checkpoint_file(const std::string& name);  // the manifest, a rank's file, either with .tmp

// Removes the directory `path`: the file `first`, the others, the directory. Does nothing if
// nothing is there. CheckpointError if the system refuses. Also if something remains that is not
// the program's, which it names.
void remove_directory(const Io& io, const std::string& path, const std::string& first, const OwnName& own = is_checkpoint_file);

// Removes one file or link, if there is one; CheckpointError if it cannot be removed.
void remove_file(const Io& io, const std::string& path);

}  // namespace trireme
