// Plans the window file it is given with the installed library.

#include <iostream>

#include "client/planner_client.h"
#include "client/window_file.h"
#include "planner/planner.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto loaded = routepack::LoadWindow(argv[1]);
  if (!loaded.ok()) {
    std::cerr << loaded.status() << "\n";
    return 1;
  }
  const routepack::Window& window = loaded->window;
  const routepack::Placement current =
      routepack::IdentityPlacement(window.num_layers(), window.num_experts(),
                                   window.spec().topology.num_ranks());
  const auto plan = routepack::MakePlan(window, current, {});
  if (!plan.ok()) {
    std::cerr << plan.status() << "\n";
    return 1;
  }
  const absl::Status valid = routepack::ValidatePlan(window, *plan);
  std::cout << plan->rows.rows << " rows, joint " << plan->routepack.joint
            << ", " << valid << "\n";
  return valid.ok() ? 0 : 1;
}
