/**
 * The public interface of this room: the hub of a plain site serves its objects to nodes that do not see its folder, and
 * the driver of such a node.
 */
export { HubConnection, type NodeTls } from './hub-connection.ts'
export { HubMember, type SiteTree } from './hub-member.ts'
export {
  type ActingDeps,
  type Changed,
  type Hub,
  type HubDeps,
  type HubTls,
  type Identified,
  openHub,
} from './hub-server.ts'
export type { StoredTerm } from './plan-term.ts'
export { RemoteApi } from './remote-api.ts'
export { type EnrolRequest, type Removals, type TreePath, parseStoredTerm } from './wire.ts'
