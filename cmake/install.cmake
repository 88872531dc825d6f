# Installation: make install, or cmake --install build --prefix DIR. The program, its man page, completion of shells, configs, docs.
include(GNUInstallDirs)
set(pages ${CMAKE_BINARY_DIR}/pages)
install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The program writes its own pages. A build for another processor cannot run here, and is installed without them.
install(CODE "set(TRIREME_RUN ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:trireme>\")\nset(TRIREME_PAGES \"${pages}\")")
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/write_pages.cmake)
install(FILES ${pages}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES ${pages}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme OPTIONAL)
install(FILES ${pages}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _trireme OPTIONAL)
install(FILES ${pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME trireme.fish OPTIONAL)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme FILES_MATCHING PATTERN *.yaml PATTERN *.json)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md CITATION.cff SECURITY.md LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
