// The rooms of the console. A room is a module that exports `build(context)`: its element, and what to do when it is entered and left.

/** In the order of the navigation. A new room is one line here. */
export const ROOMS = [
  { name: "talk", title: "Talk", load: () => import("./talk/room.js") },
  { name: "gallery", title: "Gallery", load: () => import("./gallery/room.js") },
  { name: "robots", title: "Robots", load: () => import("./robots/room.js") },
  { name: "operations", title: "Operations", load: () => import("./operations/room.js") },
];
