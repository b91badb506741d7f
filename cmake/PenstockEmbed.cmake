# penstock_embed(<variable> <file>...): the files' text, one after the other, as pieces of a C++ raw
# string literal; a compiler takes literals of 64 KiB at least. A change of a file configures anew.
function(penstock_embed variable)
  set(literal "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    string(APPEND literal "R\"embedded(${text})embedded\"\n")
  endforeach()
  set(${variable} "${literal}" PARENT_SCOPE)
endfunction()
