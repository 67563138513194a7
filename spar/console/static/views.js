// The table of the views: the name of the file and of the address (#/NAME), the label, the group in the navigation.
// One that `isHidden` is reached by links only.
export const VIEWS = [
  { name: "now", label: "Now", group: "Live" },
  { name: "timeline", label: "Timeline", group: "Live" },
  { name: "cycle", label: "Cycle", group: "Live", isHidden: true },
  { name: "approvals", label: "Approvals", group: "Live" },
  { name: "chat", label: "Chat", group: "Live" },
  { name: "incidents", label: "Incidents", group: "Live" },
  { name: "doubts", label: "Doubts and dead letters", group: "Live" },
  { name: "memory", label: "Memory", group: "Knowledge" },
  { name: "learning", label: "Abilities and lessons", group: "Knowledge" },
  { name: "rules", label: "Rules", group: "Knowledge" },
  { name: "debug", label: "Debug", group: "Knowledge" },
  { name: "health", label: "Health", group: "Service" },
  { name: "cost", label: "Cost", group: "Service" },
  { name: "settings", label: "Settings", group: "Service" },
  { name: "nodes", label: "Nodes", group: "Service" },
];
