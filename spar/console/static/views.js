// The table of the views: the name of the file and of the address (#/NAME), the label, the group in the navigation.
// One that `isHidden` is reached by links only.
export const VIEWS = [
  { name: "now", label: "Now", group: "Live" },
  { name: "timeline", label: "Timeline", group: "Live" },
  { name: "cycle", label: "Cycle", group: "Live", isHidden: true },
  { name: "approvals", label: "Approvals", group: "Live" },
  { name: "chat", label: "Chat", group: "Live" },
];
