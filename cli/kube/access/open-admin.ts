/** An administrator's hands on a cluster, over the project's own client. */
import { isDeepStrictEqual } from 'node:util'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { DynamicClient, DynamicObject } from '../../../kubeapi/kube/dynamic-client.ts'
import type { KubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { lacksRight } from '../../../kubeapi/kube/http/refusals.ts'
import { KubeError } from '../../../kubeapi/kube/kube-error.ts'
import { type ObjectRef, refOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ClusterAdmin } from './admin.ts'

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
