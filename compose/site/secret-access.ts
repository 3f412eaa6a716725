/** Access to one Secret of a cluster as texts, for secret-identity.ts. */
import type { SecretAccess, SecretChange } from '../../protocol/membership/membership.ts'
import { type ObjectRef, titleOf } from '../../kubeapi/kube/kube.ts'
import type { ManifestObject } from '../../install/values/values.ts'

/** The used methods of a Kubernetes client. */
export interface SecretClient {
  /** Undefined if there is no such object. */
  get(ref: ObjectRef, signal: AbortSignal): Promise<ManifestObject | undefined>
  create(object: ManifestObject, options: { readonly dryRun: boolean }, signal: AbortSignal): Promise<unknown>
  /** JSON merge patch (RFC 7386). */
  merge(ref: ObjectRef, patch: unknown, signal: AbortSignal): Promise<void>
}

export interface SecretPlace {
  readonly namespace: string
  readonly name: string
  readonly type: string
  /** Set when the Secret is created and when it is changed. */
  readonly labels: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

export function secretAccess(
  client: SecretClient,
  { namespace, name, type, labels, annotations = {} }: SecretPlace,
  signal: AbortSignal,
): SecretAccess {
  const ref: ObjectRef = { apiVersion: 'v1', kind: 'Secret', namespace, name }
  return {
    place: titleOf(ref),
    read: async () => {
      const found = await client.get(ref, signal)
      if (found === undefined) return undefined
      return { data: decoded(found['data']), annotations: found.metadata.annotations ?? {} }
    },
    change: async (change) => {
      if ((await client.get(ref, signal)) === undefined) {
        const metadata = { namespace, name, labels, annotations }
        await client.create({ apiVersion: 'v1', kind: 'Secret', metadata, type }, { dryRun: false }, signal)
      }
      await client.merge(ref, patchOf(change, { labels, annotations }), signal)
    },
  }
}

function decoded(data: unknown): Record<string, string> {
  const entries = Object.entries((data ?? {}) as Record<string, unknown>)
  return Object.fromEntries(
    entries.flatMap(([name, value]): [string, string][] =>
      typeof value === 'string' ? [[name, Buffer.from(value, 'base64').toString('utf8')]] : [],
    ),
  )
}

function patchOf(
  { data = {}, annotations = {} }: SecretChange,
  always: Pick<SecretPlace, 'labels' | 'annotations'>,
): unknown {
  const encoded = Object.entries(data).map(([name, text]) => [
    name,
    text === null ? null : Buffer.from(text, 'utf8').toString('base64'),
  ])
  const metadata = { labels: always.labels, annotations: { ...always.annotations, ...annotations } }
  return { metadata, data: Object.fromEntries(encoded) as unknown }
}
