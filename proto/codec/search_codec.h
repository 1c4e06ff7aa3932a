// Options and reports of the search to messages and back.

#ifndef ROUTEPACK_PROTO_CODEC_SEARCH_CODEC_H_
#define ROUTEPACK_PROTO_CODEC_SEARCH_CODEC_H_

#include "planner/errors.h"
#include "planner/search.h"
#include "planner/window.h"
#include "routepack/v1/plan.pb.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// As asked: what is 0 or absent stays so (see ResolveSearch). Adds a violation
// for every value out of range, with paths below "header.options.search".
SearchOptions DecodeSearchOptions(const v1::SearchOptions& message,
                                  Violations& bad);
void EncodeSearchOptions(const SearchOptions& options,
                         v1::SearchOptions* message);

// The rate of proposals follows from the last stage, which is the annealing
// when there are levels.
void EncodeSearchReport(const Window& window, const SearchReport& report,
                        v1::SearchReport* message);

// As stated, for nothing in it can be recomputed. Of the scores of a level only
// the slowest shard is known. Adds violations with paths below "search_report".
SearchReport DecodeSearchReport(const Window& window,
                                const v1::SearchReport& message,
                                Violations& bad);

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_SEARCH_CODEC_H_
