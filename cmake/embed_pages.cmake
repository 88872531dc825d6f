# Writes OUTPUT, a C++ source with the texts of the page of `trireme watch`, from the files in SOURCE.
file(READ ${SOURCE}/watch_page.html html)
file(READ ${SOURCE}/watch_page.js js)
file(WRITE ${OUTPUT} "#include \"train/telemetry/watch_page.h\"\n\nnamespace trireme {\n"
  "std::string_view watch_page_html() { return R\"file(" "${html}" ")file\"; }\n"
  "std::string_view watch_page_js() { return R\"file(" "${js}" ")file\"; }\n}  // namespace trireme\n")
