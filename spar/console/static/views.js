// The table of the views: the name of the file and of the address (#/NAME), the label, the group in the navigation.
export const VIEWS = [
  { name: "now", label: "Now", group: "Live" },
];
