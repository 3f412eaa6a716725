/** A MemoryAdmin whose controllers run at once: applied objects are ready immediately, unless the test prevents it. */
import {
  ASK_FIRST_ANNOTATION,
  PROBLEM_ANNOTATION,
  REASON_ANNOTATION,
} from '../../protocol/membership/secret-identity.ts'
import type { Lookable } from '../../cli/discovery/read-snapshot.ts'
import type { Applied } from '../../cli/context/cluster-admin.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import type { ListInit } from '../../kubeapi/kube/dynamic-client.ts'
import type { ObjectRef } from '../../kubeapi/kube/kinds.ts'
import type { ManifestObject } from '../../install/values/manifest.ts'
import { MemoryAdmin } from './memory-admin.ts'

export class InstallingAdmin extends MemoryAdmin {
  /** The status of each DaemonSet about its pods. */
  daemons: object = { desiredNumberScheduled: 1, numberReady: 1, updatedNumberScheduled: 1 }
  /** The agent's answer to a token: the parts of an identity, in base64. */
  identity: Readonly<Record<string, string>> = {}
  /** The broker's answer when the agent is to ask before it joins. */
  wouldRenumber: string | undefined

  override async apply(object: ManifestObject, options: { readonly dryRun: boolean }): Promise<Applied> {
    const status = this.#statusOf(object.kind)
    const spec = object.kind === 'Service' ? { spec: { ...(object['spec'] as object), clusterIP: '10.43.0.99' } } : {}
    return super.apply({ ...object, ...spec, ...(status === undefined ? {} : { status }) }, options)
  }

  override async merge(ref: ObjectRef, patch: unknown): Promise<void> {
    await super.merge(ref, patch)
    if (ref.kind !== 'Secret') return
    const { data, metadata } = (await this.get(ref)) as unknown as SecretShape
    const { token } = data ?? {}
    if (token === undefined || token === null) return
    if (this.wouldRenumber !== undefined && metadata.annotations?.[ASK_FIRST_ANNOTATION] !== undefined) {
      const said = { [PROBLEM_ANNOTATION]: this.wouldRenumber, [REASON_ANNOTATION]: 'JoinAwaitsAgreement' }
      await super.merge(ref, { metadata: { annotations: said } })
      return
    }
    await super.merge(ref, { data: { token: null, ...this.identity } })
  }

  /** Gives read access for checks. */
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

interface SecretShape {
  readonly data?: { readonly token?: string | null }
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> }
}

function withoutUndefined({ namespace, labelSelector }: { namespace?: string | undefined; labelSelector?: string }) {
  return {
    ...(namespace === undefined ? {} : { namespace }),
    ...(labelSelector === undefined ? {} : { labelSelector }),
  }
}
