/** A MemoryAdmin in which controllers run at once: what is applied is there and ready, as far as the test lets it. */
import type { Lookable } from '../../cli/kube/access/snapshot-reader.ts'
import type { Applied } from '../../cli/kube/access/admin.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import type { ListInit } from '../../kubeapi/kube/dynamic-client.ts'
import type { ObjectRef } from '../../kubeapi/kube/write/object-ref.ts'
import type { ManifestObject } from '../../install/manifest-object.ts'
import { MemoryAdmin } from './memory-admin.ts'

export class InstallingAdmin extends MemoryAdmin {
  /** What each DaemonSet says of its pods. */
  daemons: object = { desiredNumberScheduled: 1, numberReady: 1, updatedNumberScheduled: 1 }
  /** The agent's answer to a token: parts of an identity, base64. */
  identity: Readonly<Record<string, string>> = {}

  override async apply(object: ManifestObject, options: { readonly dryRun: boolean }): Promise<Applied> {
    const status = this.#statusOf(object.kind)
    const spec = object.kind === 'Service' ? { spec: { ...(object['spec'] as object), clusterIP: '10.43.0.99' } } : {}
    return super.apply({ ...object, ...spec, ...(status === undefined ? {} : { status }) }, options)
  }

  override async merge(ref: ObjectRef, patch: unknown): Promise<void> {
    await super.merge(ref, patch)
    const { data } = patch as { readonly data?: { readonly token?: unknown } }
    if (ref.kind !== 'Secret' || typeof data?.token !== 'string') return
    await super.merge(ref, { data: { token: null, ...this.identity } })
  }

  /** For looking around. */
  get dynamic(): Lookable {
    return {
      get: (ref: ObjectRef) => this.get(ref),
      list: (init: ListInit) => this.list(init.apiVersion, init.kind, withoutUndefined(init)),
      create: () => Promise.reject(new ClusterApiError('Invalid', 'no dry runs here')),
      read: () => this.version(),
    } as unknown as Lookable
  }

  #statusOf(kind: string): object | undefined {
    if (kind === 'CustomResourceDefinition') return { conditions: [{ type: 'Established', status: 'True' }] }
    if (kind === 'DaemonSet') return this.daemons
    return kind === 'Deployment' ? { readyReplicas: 2, updatedReplicas: 2 } : undefined
  }
}

function withoutUndefined({ namespace, labelSelector }: { namespace?: string | undefined; labelSelector?: string }) {
  return {
    ...(namespace === undefined ? {} : { namespace }),
    ...(labelSelector === undefined ? {} : { labelSelector }),
  }
}
