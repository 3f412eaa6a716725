/** Where the API server has an object. */
import type { KubeObject } from './kube-request.ts'

const PLURALS: Readonly<Record<string, string>> = {
  NetworkPolicy: 'networkpolicies',
  ValidatingAdmissionPolicy: 'validatingadmissionpolicies',
}

/** Of an object of any kind that install/ knows. */
export function pathOf({ apiVersion, kind, metadata }: KubeObject): string {
  const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`
  const scope = metadata.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`
  return `${group}${scope}/${PLURALS[kind] ?? `${kind.toLowerCase()}s`}/${metadata.name}`
}
