/** Objects as the text of a generated file. */
import { formatYaml } from '../kubeapi/yaml.ts'

export const HEADER = '# Written by `npm run manifests` from install/. Change it there.\n'

export function documents(objects: readonly unknown[]): string {
  return HEADER + objects.map((object) => `---\n${formatYaml(object)}`).join('')
}

export function kustomization(resources: readonly string[]): string {
  return documents([{ apiVersion: 'kustomize.config.k8s.io/v1beta1', kind: 'Kustomization', resources }])
}

/** To be named below `components:` of a kustomization that has what it changes. */
export function component(content: {
  readonly components?: readonly string[]
  readonly resources: readonly string[]
  readonly patches?: readonly object[]
}): string {
  return documents([{ apiVersion: 'kustomize.config.k8s.io/v1alpha1', kind: 'Component', ...content }])
}
