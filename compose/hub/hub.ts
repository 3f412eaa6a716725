/**
 * The public interface of this room: a plain site whose nodes do not share a folder. Its hub on the node that has the
 * folder, and the other nodes.
 */
export { HubStore } from './hub-store.ts'
export { TermStore } from './hub-tree.ts'
export { SharedMarks } from './shared-marks.ts'
export { type HubRole, type SiteNode, copiesOf, openFirstHub, openSiteNode } from './open-site-node.ts'
export { type ActingSite, serveHub, serveHubs } from './serve-hub.ts'
