/** The operations on an API server that installing, joining and leaving need, with the rights of an administrator. */
import type { Duplex } from 'node:stream'
import { isDeepStrictEqual } from 'node:util'
import type { ManifestObject } from '../../install/values/values.ts'
import {
  type CommandResult,
  type DynamicClient,
  type DynamicObject,
  type KubeApi,
  KubeError,
  type ObjectRef,
  type ObjectType,
  type PodCommand,
  type PodPort,
  lacksRight,
  refOf,
} from '../../kubeapi/kube/kube.ts'

export interface ListScope {
  readonly namespace?: string
  readonly labelSelector?: string
  readonly limit?: number
}

export type Applied = 'created' | 'changed' | 'unchanged'

/** An object before and after it would be applied. */
export interface Preview {
  /** Undefined if the object would be created. */
  readonly before: ManifestObject | undefined
  readonly after: ManifestObject
}

/** Every method throws KubeError, which names the request, the object and the answer of the server. */
export interface ClusterAdmin {
  /** `context "c1" of /home/ana/.kube/config` */
  readonly title: string
  /** The name of the kubeconfig's context. Undefined if it has none. */
  readonly contextName: string | undefined
  /** `GET /version`. */
  version(signal: AbortSignal): Promise<unknown>
  /** True if the server serves the kind in this version, that is, if its CRD is installed. */
  knows(type: ObjectType, signal: AbortSignal): Promise<boolean>
  /** Undefined if the object or its kind does not exist. */
  get(ref: ObjectRef, signal: AbortSignal): Promise<ManifestObject | undefined>
  /** Empty if the kind does not exist. */
  list(apiVersion: string, kind: string, scope: ListScope, signal: AbortSignal): Promise<readonly ManifestObject[]>
  /** Server-side apply with field manager "sealane" and force. With dryRun the server validates and changes nothing. */
  apply(object: ManifestObject, options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<Applied>
  /**
   * What apply() would do, according to the server. An object that would be created is returned as given, without
   * asking the server. Changes nothing.
   */
  preview(object: ManifestObject, signal: AbortSignal): Promise<Preview>
  /**
   * The reason for which the server would refuse this object, in the server's words. Undefined if the server accepts
   * the object or cannot evaluate it yet because its kind, or an object that it names, is missing. If the object's
   * namespace is missing, the request goes to namespace `default` instead. Changes nothing.
   */
  refusal(object: ManifestObject, signal: AbortSignal): Promise<string | undefined>
  /** Creates an object without server-side apply. For probes and access reviews. */
  create(object: ManifestObject, options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<ManifestObject>
  /** JSON merge patch (RFC 7386). */
  merge(ref: ObjectRef, patch: unknown, signal: AbortSignal): Promise<void>
  /**
   * Replaces `before` with `after`: creates the object if `before` is undefined, deletes it if `after` is undefined.
   * False if the object has changed since `before` was read; then nothing is changed.
   */
  replace(
    ref: ObjectRef,
    before: ManifestObject | undefined,
    after: ManifestObject | undefined,
    signal: AbortSignal,
  ): Promise<boolean>
  /** Deletes the object, and does not wait until it is gone. True if it existed. */
  remove(ref: ObjectRef, signal: AbortSignal): Promise<boolean>
  /** Runs a command in a container and waits until it ends. */
  exec(command: PodCommand, signal: AbortSignal): Promise<CommandResult>
  /** Opens one connection to a port on the loopback of a pod. Aborting `signal` also ends the connection later. */
  forward(target: PodPort, signal: AbortSignal): Promise<Duplex>
}

/** A ClusterAdmin on top of the project's own API client. */
export function adminOf(api: Pick<KubeApi, 'dynamic' | 'access' | 'exec' | 'forward'>): ClusterAdmin {
  const { dynamic, access } = api
  const get = async (ref: ObjectRef, signal: AbortSignal): Promise<ManifestObject | undefined> =>
    (await dynamic.knows(ref, signal)) ? asManifest(await dynamic.get(ref, signal)) : undefined
  return {
    title: access.title,
    contextName: access.contextName,
    get,
    version: (signal) => dynamic.read('/version', signal),
    knows: (type, signal) => dynamic.knows(type, signal),
    list: async (apiVersion, kind, { limit, ...scope }, signal) => {
      if (!(await dynamic.knows({ apiVersion, kind }, signal))) return []
      const most = limit === undefined ? {} : { most: limit }
      return (await dynamic.list({ apiVersion, kind, ...scope, ...most }, signal)) as readonly ManifestObject[]
    },
    apply: async (object, options, signal) => {
      const before = await get(refOf(object), signal)
      // In a dry run the server cannot evaluate an object whose namespace or CRD does not exist yet.
      if (options.dryRun && before === undefined && !(await canBeAsked(dynamic, object, signal))) return 'created'
      const after = await dynamic.apply(object, options, signal)
      return before === undefined ? 'created' : sameContent(before, after) ? 'unchanged' : 'changed'
    },
    preview: async (object, signal) => {
      const before = await get(refOf(object), signal)
      const after = before === undefined ? object : await dynamic.apply(object, { dryRun: true }, signal)
      return { before, after: after as ManifestObject }
    },
    refusal: (object, signal) => refusal(dynamic, object, signal),
    create: async (object, options, signal) => (await dynamic.create(object, options, signal)) as ManifestObject,
    merge: async (ref, patch, signal) => {
      await dynamic.patch(ref, patch, { type: 'merge' }, signal)
    },
    replace: (ref, before, after, signal) => replace(dynamic, ref, before, after, signal),
    remove: async (ref, signal) => (await dynamic.knows(ref, signal)) && dynamic.delete(ref, {}, signal),
    exec: (command, signal) => api.exec(command, signal),
    forward: (target, signal) => api.forward(target, signal),
  }
}

function asManifest(object: DynamicObject | undefined): ManifestObject | undefined {
  return object as ManifestObject | undefined
}

async function canBeAsked(dynamic: DynamicClient, object: ManifestObject, signal: AbortSignal): Promise<boolean> {
  if (!(await dynamic.knows(object, signal))) return false
  const { namespace } = object.metadata
  if (namespace === undefined) return true
  return (await dynamic.get({ apiVersion: 'v1', kind: 'Namespace', name: namespace }, signal)) !== undefined
}

/** This namespace exists in every cluster, and cluster-wide admission rules apply to it too. */
const STAND_IN = 'default'

async function refusal(
  dynamic: DynamicClient,
  object: ManifestObject,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (!(await dynamic.knows(object, signal))) return undefined
  if (await canBeAsked(dynamic, object, signal)) return (await refusalOf(dynamic, object, signal))?.message
  // A rule for one stand-in namespace alone says nothing about the object. So a refusal counts only if every stand-in
  // namespace refuses it.
  let found: string | undefined
  for (const namespace of await standIns(dynamic, signal)) {
    const asked = { ...object, metadata: { ...object.metadata, namespace } }
    const error = await refusalOf(dynamic, asked, signal)
    if (error === undefined || lacksRight(error)) return undefined
    found ??= `${error.message} (checked in namespace ${namespace}, because its own does not exist yet)`
  }
  return found
}

/** The namespace `default`, and one ordinary namespace of the users if there is one. */
async function standIns(dynamic: DynamicClient, signal: AbortSignal): Promise<readonly string[]> {
  const all = await dynamic.list({ apiVersion: 'v1', kind: 'Namespace' }, signal)
  const names = all.filter(({ metadata }) => !('deletionTimestamp' in metadata)).map(({ metadata }) => metadata.name)
  const other = names.sort().find((name) => name !== STAND_IN && !/^(kube|openshift|sealane)(-|$)/.test(name))
  return [STAND_IN, ...(other === undefined ? [] : [other])]
}

/** Undefined if the server accepts the object, or cannot evaluate it. */
async function refusalOf(
  dynamic: DynamicClient,
  object: ManifestObject,
  signal: AbortSignal,
): Promise<KubeError | undefined> {
  try {
    await dynamic.apply(object, { dryRun: true }, signal)
    return undefined
  } catch (error) {
    if (!(error instanceof KubeError) || !isRefusal(error)) throw error
    // An object that this one names does not exist yet, or an admission webhook does not support dry runs.
    return error.status === 404 || error.status === 409 || error.reason === 'BadRequest' ? undefined : error
  }
}

/** True also if an admission webhook does not answer. */
function isRefusal({ status }: KubeError): boolean {
  return status >= 400 && status !== 401 && status !== 429
}

/** Compares without the fields that the server maintains itself. */
function sameContent(a: ManifestObject, b: DynamicObject): boolean {
  const content = (object: ManifestObject | DynamicObject): unknown => {
    const {
      managedFields: _fields,
      resourceVersion: _version,
      ...metadata
    } = object.metadata as Record<string, unknown>
    return { ...object, metadata }
  }
  return isDeepStrictEqual(content(a), content(b))
}

async function replace(
  dynamic: DynamicClient,
  ref: ObjectRef,
  before: ManifestObject | undefined,
  after: ManifestObject | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    if (before === undefined && after === undefined) return true
    if (before === undefined) await dynamic.create(after as DynamicObject, {}, signal)
    else if (after === undefined) {
      const { uid } = before.metadata as { uid?: string }
      await dynamic.delete(ref, uid === undefined ? {} : { uid }, signal)
    } else {
      // With the resourceVersion that was read, the server refuses the request if another client has written in
      // between.
      const { resourceVersion } = before.metadata as { resourceVersion?: string }
      const { creationTimestamp: _at, managedFields: _fields, ...metadata } = after.metadata as Record<string, unknown>
      await dynamic.replace({ ...after, metadata: { ...metadata, resourceVersion } } as DynamicObject, {}, signal)
    }
    return true
  } catch (error) {
    if (error instanceof KubeError && error.status === 409) return false
    throw error
  }
}

// Lookups before a change: what this user may not read stays unknown and does not stop the command.

/** Undefined if the server answers 403. */
export async function unlessForbidden<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof KubeError && error.status === 403) return undefined
    throw error
  }
}

/** Undefined if this user may not list the objects. */
export function listIfAllowed(
  admin: Pick<ClusterAdmin, 'list'>,
  apiVersion: string,
  kind: string,
  signal: AbortSignal,
  scope: ListScope = {},
): Promise<readonly ManifestObject[] | undefined> {
  return unlessForbidden(() => admin.list(apiVersion, kind, scope, signal))
}
