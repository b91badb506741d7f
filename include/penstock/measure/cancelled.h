// The exception of a cancelled measurement: ps::Cancelled. No files are left behind.
#pragma once

#include "penstock/base/error.h"
