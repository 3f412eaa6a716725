/** A ClusterAdmin over objects in memory, which keeps the requests, and refuses those that the test names. */
import type { Duplex } from 'node:stream'
import { isDeepStrictEqual } from 'node:util'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kinds.ts'
import type { Applied, ClusterAdmin, ListScope, Preview } from '../../cli/context/cluster-admin.ts'
import type { CommandResult, PodCommand } from '../../kubeapi/kube/http/pod-exec.ts'
import type { PodPort } from '../../kubeapi/kube/http/pod-forward.ts'
import type { ManifestObject } from '../../install/values/manifest.ts'

export class MemoryAdmin implements ClusterAdmin {
  readonly title = 'context "c1" of kubeconfig'
  readonly contextName: string | undefined = 'c1'
  /** The requests, as `apply Deployment sealane-system/sealane-agent`, oldest first; dry runs end with `(dry)`. */
  readonly done: string[] = []
  /** Each verb and resource (`patch nodes`) that reviews deny. */
  readonly denied = new Set<string>()
  readonly #objects = new Map<string, ManifestObject>()

  constructor(objects: readonly ManifestObject[] = []) {
    for (const object of objects) this.put(object)
  }

  put(object: ManifestObject): void {
    this.#objects.set(keyOf(refOf(object)), object)
  }

  version(): Promise<unknown> {
    return Promise.resolve({ gitVersion: 'v1.36.0' })
  }

  /** Kinds that the server does not know: it is not OpenShift unless a test says so. */
  readonly unknown = new Set<string>(['SecurityContextConstraints'])

  knows({ kind }: { readonly apiVersion: string; readonly kind: string }): Promise<boolean> {
    return Promise.resolve(!this.unknown.has(kind))
  }

  get(ref: ObjectRef): Promise<ManifestObject | undefined> {
    return Promise.resolve(this.#objects.get(keyOf(ref)))
  }

  list(apiVersion: string, kind: string, { namespace, labelSelector }: ListScope): Promise<readonly ManifestObject[]> {
    const all = [...this.#objects.values()].filter((object) => object.apiVersion === apiVersion && object.kind === kind)
    const wanted = (labelSelector ?? '').split(',').filter((pair) => pair !== '')
    return Promise.resolve(
      all.filter(({ metadata }) => {
        const labels = Object.entries(metadata.labels ?? {}).map((pair) => pair.join('='))
        const inside = namespace === undefined || metadata.namespace === namespace
        return inside && wanted.every((pair) => labels.includes(pair))
      }),
    )
  }

  apply(object: ManifestObject, { dryRun }: { readonly dryRun: boolean }): Promise<Applied> {
    this.done.push(`apply ${titleOf(refOf(object))}${dryRun ? ' (dry)' : ''}`)
    const before = this.#objects.get(keyOf(refOf(object)))
    if (!dryRun) this.put(object)
    return Promise.resolve(
      before === undefined ? 'created' : isDeepStrictEqual(before, object) ? 'unchanged' : 'changed',
    )
  }

  /** Fields that are not given stay, as with server-side apply; lists are replaced. */
  preview(object: ManifestObject): Promise<Preview> {
    const before = this.#objects.get(keyOf(refOf(object)))
    const after = before === undefined ? object : (merged(before, JSON.parse(JSON.stringify(object))) as ManifestObject)
    return Promise.resolve({ before, after })
  }

  /** From the title of an object to the error that refuses it. */
  readonly refuses = new Map<string, string>()

  refusal(object: ManifestObject): Promise<string | undefined> {
    return Promise.resolve(this.refuses.get(titleOf(refOf(object))))
  }

  create(object: ManifestObject): Promise<ManifestObject> {
    if (object.kind === 'SelfSubjectAccessReview') return Promise.resolve(this.#reviewed(object))
    this.done.push(`create ${titleOf(refOf(object))}`)
    this.put(object)
    return Promise.resolve(object)
  }

  merge(ref: ObjectRef, patch: unknown): Promise<void> {
    this.done.push(`merge ${titleOf(ref)}`)
    const before = this.#objects.get(keyOf(ref))
    if (before === undefined) return Promise.reject(new ClusterApiError('NotFound', `${titleOf(ref)} does not exist`))
    this.put(merged(before, patch) as ManifestObject)
    return Promise.resolve()
  }

  replace(ref: ObjectRef, _before: ManifestObject | undefined, after: ManifestObject | undefined): Promise<boolean> {
    this.done.push(`replace ${titleOf(ref)}`)
    if (after === undefined) this.#objects.delete(keyOf(ref))
    else this.put(after)
    return Promise.resolve(true)
  }

  remove(ref: ObjectRef): Promise<boolean> {
    this.done.push(`remove ${titleOf(ref)}`)
    return Promise.resolve(this.#objects.delete(keyOf(ref)))
  }

  /** Runs a command in a pod; by default there are no pods. */
  run: (command: PodCommand) => Promise<CommandResult> = () => Promise.reject(new Error('there are no pods here'))

  exec(command: PodCommand): Promise<CommandResult> {
    const { namespace, pod, container } = command
    this.done.push(`exec ${namespace}/${pod} ${container}: ${command.command.join(' ')}`)
    return this.run(command)
  }

  /** Connects to a port of a pod; by default there are no pods. */
  dial: (target: PodPort, signal: AbortSignal) => Promise<Duplex> = () =>
    Promise.reject(new Error('there are no pods here'))

  forward(target: PodPort, signal: AbortSignal): Promise<Duplex> {
    this.done.push(`forward ${target.namespace}/${target.pod} ${target.port}`)
    return this.dial(target, signal)
  }

  #reviewed(review: ManifestObject): ManifestObject {
    const { resourceAttributes } = review['spec'] as { resourceAttributes: Readonly<Record<string, string>> }
    const { verb, resource, subresource = '' } = resourceAttributes
    const what = subresource === '' ? resource : `${resource}/${subresource}`
    return { ...review, status: { allowed: !this.denied.has(`${verb} ${what}`) } }
  }
}

function keyOf({ apiVersion, kind, namespace = '', name }: ObjectRef): string {
  return `${apiVersion} ${kind} ${namespace}/${name}`
}

/** A JSON merge patch (RFC 7386). */
function merged(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch
  const result: Record<string, unknown> = { ...(typeof target === 'object' && target !== null ? target : {}) }
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, key)
    else result[key] = merged(result[key], value)
  }
  return result
}
