/** What installing, joining and leaving need of an API server, as an administrator. */
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
  lacksRight,
  refOf,
} from '../../kubeapi/kube/kube.ts'

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

/** An administrator's hands on a cluster, over the project's own client. */
export function adminOf(api: Pick<KubeApi, 'dynamic' | 'access' | 'exec'>): ClusterAdmin {
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
      // A dry run before the namespace, or the CRD, is there: the server could not even look at it.
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

/** Every cluster has it, and rules that are the company's hold there as well. */
const STAND_IN = 'default'

async function refusal(
  dynamic: DynamicClient,
  object: ManifestObject,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (!(await dynamic.knows(object, signal))) return undefined
  if (await canBeAsked(dynamic, object, signal)) return (await refusalOf(dynamic, object, signal))?.message
  // A rule about the one stand-in itself says nothing of the object: what is refused is refused in the other one, too.
  let found: string | undefined
  for (const namespace of await standIns(dynamic, signal)) {
    const asked = { ...object, metadata: { ...object.metadata, namespace } }
    const error = await refusalOf(dynamic, asked, signal)
    if (error === undefined || lacksRight(error)) return undefined
    found ??= `${error.message}; asked in namespace ${namespace}, as its own is not there yet`
  }
  return found
}

/** One, and an ordinary one of the users where there is one. */
async function standIns(dynamic: DynamicClient, signal: AbortSignal): Promise<readonly string[]> {
  const all = await dynamic.list({ apiVersion: 'v1', kind: 'Namespace' }, signal)
  const names = all.filter(({ metadata }) => !('deletionTimestamp' in metadata)).map(({ metadata }) => metadata.name)
  const other = names.sort().find((name) => name !== STAND_IN && !/^(kube|openshift|sealane)(-|$)/.test(name))
  return [STAND_IN, ...(other === undefined ? [] : [other])]
}

/** Undefined: it is taken, or it cannot be asked. */
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
    // What it names is not there yet; or a webhook is asked that takes no dry runs.
    return error.status === 404 || error.status === 409 || error.reason === 'BadRequest' ? undefined : error
  }
}

/** Also of a webhook that does not answer. */
function isRefusal({ status }: KubeError): boolean {
  return status >= 400 && status !== 401 && status !== 429
}

/** What the server itself counts and stamps does not make a change. */
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
      // The version that was read makes the server refuse where somebody wrote in between.
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

// Looking around before something is changed: what this user may not see is not known, and no reason to stop.

/** Undefined where the server says 403. */
export async function unlessForbidden<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof KubeError && error.status === 403) return undefined
    throw error
  }
}

/** Undefined where this user may not list them. */
export function listIfAllowed(
  admin: Pick<ClusterAdmin, 'list'>,
  apiVersion: string,
  kind: string,
  signal: AbortSignal,
  scope: ListScope = {},
): Promise<readonly ManifestObject[] | undefined> {
  return unlessForbidden(() => admin.list(apiVersion, kind, scope, signal))
}
