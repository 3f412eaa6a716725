/** Where the programs of a control plane come from: KUBEBUILDER_ASSETS, or the Go module in test/kube. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Programs, buildGoModule, goVersion } from './build-programs.ts'

const MODULE = join(import.meta.dirname, '..')
const BUILT = ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kube-proxy']
/** What envtest's archives hold. */
const ENVTEST = ['kube-apiserver', 'etcd', 'kubectl']
const SEARCH = [...(process.env['PATH'] ?? '').split(':'), '/usr/local/bin', '/usr/bin']

/** Why no control plane can be started here, in a sentence; undefined when one can. */
export function kubeProgramsMissing(): string | undefined {
  const assets = assetsFolder()
  if (assets !== undefined) {
    const missing = ['kube-apiserver', 'etcd'].filter((name) => !existsSync(join(assets, name)))
    return missing.length === 0
      ? undefined
      : `KUBEBUILDER_ASSETS names ${assets}, where there is no ${missing.join(' and no ')}`
  }
  if (goVersion() === undefined) {
    return 'needs Go to build kube-apiserver, or KUBEBUILDER_ASSETS with the folder of envtest programs'
  }
  return onPath('etcd') === undefined ? 'needs etcd (package etcd-server)' : undefined
}

/**
 * The paths of kube-apiserver, etcd and, as far as they can be had, kube-controller-manager, kube-scheduler,
 * kube-proxy and kubectl. Programs in KUBEBUILDER_ASSETS come first; what is missing there is built when Go is here.
 */
export async function kubePrograms(): Promise<Programs> {
  const problem = kubeProgramsMissing()
  if (problem !== undefined) throw new Error(problem)
  const found: Record<string, string> = {}
  for (const name of ['etcd', 'kubectl']) {
    const path = onPath(name)
    if (path !== undefined) found[name] = path
  }
  const given = assetPrograms()
  const built = BUILT.every((name) => name in given) || goVersion() === undefined ? {} : await buildKubernetes()
  return { ...found, ...built, ...given }
}

function buildKubernetes(): Promise<Programs> {
  const version = /k8s\.io\/kubernetes v(\S+)/.exec(readFileSync(join(MODULE, 'go.mod'), 'utf8'))?.[1] ?? '0.0.0'
  const [major, minor] = version.split('.')
  const set = (name: string, value = ''): string => `-X k8s.io/component-base/version.${name}=${value}`
  return buildGoModule(MODULE, {
    ldflags: [set('gitVersion', `v${version}`), set('gitMajor', major), set('gitMinor', minor)],
    names: { kube: BUILT },
  })
}

function assetsFolder(): string | undefined {
  const folder = process.env['KUBEBUILDER_ASSETS']
  return folder === undefined || folder === '' ? undefined : folder
}

function assetPrograms(): Programs {
  const assets = assetsFolder()
  if (assets === undefined) return {}
  const paths = [...new Set([...ENVTEST, ...BUILT])].map((name) => [name, join(assets, name)] as const)
  return Object.fromEntries(paths.filter(([, path]) => existsSync(path)))
}

function onPath(name: string): string | undefined {
  return SEARCH.map((folder) => join(folder, name)).find((path) => dirname(path) !== '.' && existsSync(path))
}
