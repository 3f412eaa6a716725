/** The objects of install/, as tests compare and send them. */
import { join } from 'node:path'
import { planBroker } from '../../../install/plan-broker.ts'
import { planMember } from '../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'
import { ROOT } from '../../support/source-tree.ts'
import type { KubeObject } from './kube-request.ts'

export const MANIFESTS = join(ROOT, 'manifests')

/**
 * As it goes to an API server, in the order of kinds and names: templates are files, and files have their own order.
 */
export function sorted(objects: readonly unknown[]): KubeObject[] {
  // Kustomize leaves out maps of metadata that are empty.
  const text = JSON.stringify(objects).replaceAll(',"annotations":{}}', '}')
  const plain = JSON.parse(text) as KubeObject[]
  const key = ({ kind, metadata }: KubeObject): string => `${kind} ${metadata.namespace ?? ''} ${metadata.name}`
  return plain.sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

export function memberObjects(values: InstallValues = DEFAULT_VALUES): KubeObject[] {
  return sorted(planMember(values).flatMap((part) => part.objects))
}

export function brokerObjects(values: InstallValues = DEFAULT_VALUES): KubeObject[] {
  return sorted(planBroker(values).flatMap((part) => part.objects))
}
