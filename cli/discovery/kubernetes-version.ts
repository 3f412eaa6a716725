/** Which Kubernetes this is, and whether it is new enough. Pure. */
import type { Finding } from './evidence.ts'
import { textAt } from './snapshot/raw.ts'

export interface KubernetesVersion {
  /** `v1.33.5+k3s1`, as the API server says it. */
  readonly text: string
  readonly major: number
  readonly minor: number
}

/**
 * Our CRDs check addresses with CEL's functions for them, which CRDs may use since 1.31. The rest of what is needed is
 * older: ValidatingAdmissionPolicy 1.30, CEL in CRDs 1.29, server-side apply 1.22, discovery.k8s.io/v1 1.21.
 */
export const MINIMUM_KUBERNETES = { major: 1, minor: 31, why: 'CRDs can check addresses and networks since 1.31' }

export function kubernetesVersion(version: unknown): Finding<KubernetesVersion> | undefined {
  const text = textAt(version, 'gitVersion')
  const both = `${textAt(version, 'major') ?? ''}.${textAt(version, 'minor') ?? ''}`
  const [, major = '', minor = ''] = /^v?(\d{1,4})\.(\d{1,4})/.exec(text ?? both) ?? []
  if (major === '') return undefined
  const value = { text: text ?? `v${both}`, major: Number(major), minor: Number(minor) }
  return { value, confidence: 'certain', how: "the API server's /version" }
}

/** One sentence when it is too old. */
export function tooOld(version: KubernetesVersion): string | undefined {
  const { major, minor, why } = MINIMUM_KUBERNETES
  if (version.major > major || (version.major === major && version.minor >= minor)) return undefined
  return `Kubernetes ${version.text} is too old: expected ${major}.${minor} or newer (${why})`
}
