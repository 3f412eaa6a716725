/** The public interface of this room: the driver for a Kubernetes API server. */
export { DynamicClient, type DynamicObject } from './dynamic-client.ts'
export { withForwardedSocket } from './http/forward-socket.ts'
export type { CommandResult, PodCommand } from './http/pod-exec.ts'
export type { PodPort } from './http/pod-forward.ts'
export { type Refusal, lacksRight } from './http/refusals.ts'
export { KIND_PLACES, type ObjectRef, type ObjectType, refOf, titleOf } from './kinds.ts'
export { KubeApi, type KubeApiInit, openKubeApi } from './kube-api.ts'
export { KubeError } from './kube-error.ts'
export { contextNames } from './kubeconfig.ts'
export type { ServerAccess } from './server-access.ts'
export {
  type ManagedFieldsEntry,
  appliedFields,
  fingerprint,
  lacksObjectMarks,
  ownedPart,
} from './write/owned-fields.ts'
