/**
 * The README's commands for Kubernetes clusters, with three additions: the image and a NodePort, since there is no
 * registry here and no load balancer, and a yes, since nobody is here to be asked.
 */
import { SEALANE_IMAGE } from '../../test/kube/support/two-clusters.ts'

const IMAGE = `--image ${SEALANE_IMAGE}`

export const TOKEN_FILE = 'token.txt'
export const DEPLOY = `broker deploy --context hub --service-type NodePort ${IMAGE}`
export const TOKEN = 'token create --context hub'

export function joinWords(cluster: string): string {
  return `join --context ${cluster} --token-file ${TOKEN_FILE} ${IMAGE}`
}

export function leaveWords(cluster: string): string {
  return `leave --context ${cluster} --yes`
}

export function uninstallWords(cluster: string): string {
  return `uninstall --context ${cluster} --crds --delete-data --yes`
}
