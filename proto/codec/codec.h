// The one translation between messages (proto/routepack/v1) and planner
// values. Server, client and command line all go through it, so a window means
// the same everywhere.
//
// Errors carry field violations with paths as in the messages
// ("header.topology.mesh.ep", "samples[3].counts.u16").
//
//   window_codec.h  headers, samples and options to planner values
//   plan_codec.h    plans to messages and back
//   search_codec.h  options and reports of the search
//   rank_plan.h     the part of a plan that one rank needs
//   status.h        errors on the wire

#ifndef ROUTEPACK_PROTO_CODEC_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_CODEC_H_

#include "proto/codec/plan_codec.h"
#include "proto/codec/rank_plan.h"
#include "proto/codec/search_codec.h"
#include "proto/codec/status.h"
#include "proto/codec/window_codec.h"

#endif  // ROUTEPACK_PROTO_CODEC_CODEC_H_
