/** What installing, joining and leaving need of an API server, as an administrator. */
import type { ObjectRef, ObjectType } from '../../../kubeapi/kube/write/object-ref.ts'
import type { CommandResult, PodCommand } from '../../../kubeapi/kube/http/pod-exec.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'

export interface ListScope {
  readonly namespace?: string
  readonly labelSelector?: string
  readonly limit?: number
}

export type Applied = 'created' | 'changed' | 'unchanged'

/** What an object is, and what applying would make of it. */
export interface Preview {
  /** Undefined: it would be created. */
  readonly before: ManifestObject | undefined
  readonly after: ManifestObject
}

/** All of it throws KubeError: what was asked of which object, and what the server said. */
export interface ClusterAdmin {
  /** `context "c1" of /home/ana/.kube/config` */
  readonly title: string
  /** Name of the kubeconfig's context; undefined without one. */
  readonly contextName: string | undefined
  /** `GET /version`. */
  version(signal: AbortSignal): Promise<unknown>
  /** True where the server knows the kind in this version: its CRD is there. */
  knows(type: ObjectType, signal: AbortSignal): Promise<boolean>
  /** Undefined where the object does not exist, its kind included. */
  get(ref: ObjectRef, signal: AbortSignal): Promise<ManifestObject | undefined>
  /** Empty where the kind does not exist. */
  list(apiVersion: string, kind: string, scope: ListScope, signal: AbortSignal): Promise<readonly ManifestObject[]>
  /** Server-side apply as manager "sealane", by force. With dryRun the server checks and changes nothing. */
  apply(object: ManifestObject, options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<Applied>
  /** What apply() would do, as the server says; what would be created is not shown to it. Changes nothing. */
  preview(object: ManifestObject, signal: AbortSignal): Promise<Preview>
  /**
   * What the server would refuse to take this object with, in its words; undefined where it takes it, or cannot be
   * asked: its kind, or what it names, is not there yet. Where its namespace is not there, namespace `default` is asked
   * in its place. Changes nothing.
   */
  refusal(object: ManifestObject, signal: AbortSignal): Promise<string | undefined>
  /** Creates without applying; for probes and reviews. */
  create(object: ManifestObject, options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<ManifestObject>
  /** JSON merge patch (RFC 7386). */
  merge(ref: ObjectRef, patch: unknown, signal: AbortSignal): Promise<void>
  /**
   * Puts `after` in the place of `before`: creates without `before`, deletes without `after`. False, and nothing done,
   * where the object is not `before` any more.
   */
  replace(
    ref: ObjectRef,
    before: ManifestObject | undefined,
    after: ManifestObject | undefined,
    signal: AbortSignal,
  ): Promise<boolean>
  /** Absent is fine. True when there was something. Does not wait for it to go. */
  remove(ref: ObjectRef, signal: AbortSignal): Promise<boolean>
  /** Runs a command in a container to its end. */
  exec(command: PodCommand, signal: AbortSignal): Promise<CommandResult>
}
