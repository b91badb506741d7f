// Deprecated: include penstock/outofcore/transform.h. This header goes away in the next version.
#pragma once

#include "penstock/outofcore/transform.h"
