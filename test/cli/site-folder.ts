/** A site without Kubernetes in a temporary folder. */
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'

const GATEWAYS = '  gateways: [{ node: gw, lane: 0 }]\n'
const DNS = "  dns: { listen: ['10.42.0.1:53'] }\n"

/** What a join says first of the rung that its links will likely have. */
const LIKELY = /^only private addresses \(192\.168\.1\.1\): links will likely be direct with members of .*\n/m

/** Without this line, which has to be there. */
export function withoutLikelyRung(text: string): string {
  if (!LIKELY.test(text)) throw new Error(`no line on the likely rung: ${text}`)
  return text.replace(LIKELY, '')
}

export class SiteFolder {
  readonly folder: string
  readonly file: string

  /** A site that can join: what `spec` lacks of gateways and dns is added, and each gateway has a Node. */
  constructor(t: Test, name = 'milano', spec = '') {
    this.folder = temporaryFolder(t)
    this.file = join(this.folder, 'site.yaml')
    mkdirSync(join(this.folder, 'objects'))
    // A Kubernetes cluster has its gateways as labels of Nodes.
    const isComplete = spec.includes('gateways:') || spec.includes('kubernetes:')
    const whole = [spec, isComplete ? '' : GATEWAYS, spec.includes('dns:') ? '' : DNS].join('')
    writeFileSync(this.file, siteYaml(name, whole))
    const nodes = [...whole.matchAll(/node: ([a-z0-9]+)/g)].map(([, node = ''], i) =>
      nodeYaml(node, `192.168.1.${i + 1}`),
    )
    writeFileSync(join(this.folder, 'objects', 'nodes.yaml'), nodes.join('---\n'))
  }

  path(file: string): string {
    return join(this.folder, file)
  }

  has(file: string): boolean {
    return existsSync(this.path(file))
  }

  read(file: string): string {
    return readFileSync(this.path(file), 'utf8')
  }

  write(file: string, text: string): void {
    writeFileSync(this.path(file), text)
  }

  remove(file: string): void {
    rmSync(this.path(file))
  }

  /** Returns a line such as `0600 identity/cluster.key` for each file that a join leaves below the state folder. */
  identity(): string[] {
    if (!this.has('state/identity')) return []
    const mode = (path: string): string => `0${(statSync(path).mode & 0o777).toString(8)}`
    const files = readdirSync(this.path('state/identity')).sort()
    return [
      `${mode(this.path('state/identity'))} identity/`,
      ...files.map((name) => `${mode(this.path(`state/identity/${name}`))} identity/${name}`),
    ]
  }

  /** Returns every object that Sealane has written here, as `Kind/namespace or _/name.json`. */
  objects(): string[] {
    const root = this.path('state/objects')
    if (!existsSync(root)) return []
    const entries = readdirSync(root, { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile())
    return files.map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1)).sort()
  }
}

export function siteYaml(name: string, spec = ''): string {
  return `apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: ${name} }
spec:
  podCIDRs: [10.42.0.0/16]
  serviceCIDRs: [10.43.0.0/16]
${spec}`
}

export function nodeYaml(name: string, address: string): string {
  return `apiVersion: v1
kind: Node
metadata: { name: ${name} }
status: { addresses: [{ type: InternalIP, address: ${address} }] }
`
}
