/** Objects as a thief of one of our tokens would write them. */
import { sliceObject } from '../../support/objects/service-objects.ts'
import type { Json } from '../support/kube-request.ts'

/** `shop` is not in the list, and `kube-node-lease` and `kube-public` are not items of it. */
export const SITE = [
  'apiVersion: sealane.io/v1alpha1',
  'kind: Site',
  'metadata: {name: roma}',
  'spec:',
  '  podCIDRs: [10.1.0.0/16]',
  '  allowedNamespaces:',
  '    - kube-public-x',
  '    - "kube-system"',
  '  labels: {a: kube-public}',
  '  kube-node-lease: x',
].join('\n')

export function own(kind: string, name: string): Json {
  return { apiVersion: 'sealane.io/v1alpha1', kind, metadata: { name } }
}

export function lease(name: string, holderIdentity: string): Json {
  return { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name }, spec: { holderIdentity } }
}

export function serviceImport(name: string, labels: Readonly<Record<string, string>> = {}): Json {
  const spec = { type: 'ClusterSetIP', ports: [] }
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', metadata: { name, labels }, spec }
}

/** Labels of slices that are named kube-dns-evil-… */
const MIRRORED = {
  'multicluster.kubernetes.io/service-name': 'kube-dns',
  'multicluster.kubernetes.io/source-cluster': 'evil',
}

export function slice(
  namespace: string,
  name: string,
  more: Readonly<Record<string, string>>,
  managedBy = 'agent.sealane.io',
): Json {
  const labels = { 'endpointslice.kubernetes.io/managed-by': managedBy, ...MIRRORED, ...more }
  const endpoints = [{ addresses: ['10.1.2.3'] }]
  return { ...sliceObject({ name, namespace, labels }, { endpoints }) }
}
