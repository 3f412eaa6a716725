/**
 * The file that makes a machine a node of a plain site without the folder of the site: kind SiteNode, written by `sealane
 * site invite`. Commands take it in place of the site file.
 */
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import { formatAddress, parseAddressPort } from '../../model/addresses/addresses.ts'
import { choice, dnsLabel, dnsSubdomain, list, textThat } from '../../model/kinds/kinds.ts'
import { type HostPort, checkReadable } from '../../runtime/runtime.ts'
import { formatYaml } from '../kubeapi.ts'
import { InvalidFileError } from './problem-board.ts'
import { readSource, schemaProblems } from './yaml-source.ts'

export interface NodeFile {
  /** Absolute path. */
  readonly file: string
  /** The name of this machine's Node. */
  readonly node: string
  /** The name of the site. */
  readonly site: string
  /** Where the hubs of the site listen. At least one. */
  readonly hubs: readonly HostPort[]
  /** `<id>.<secret>`. It can be used once. */
  readonly token: string
  /** Certificate of the authority of the site, in PEM. */
  readonly certificateAuthority: string
  /** Absolute path of this node's own state folder. */
  readonly state: string
}

const MAX_HUBS = 8

const hub = textThat('address:port such as 10.42.0.1:9474', (value) => hostPort(value) !== undefined)
const token = textThat('the token of an invitation', (value) => /^[0-9a-f]{10}\.[A-Za-z0-9_-]{43}$/.test(value))
const authority = textThat(
  'one certificate in PEM form',
  (value) =>
    value.length < 8192 && /^-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n?$/.test(value),
)

const schema = z.strictObject(
  {
    apiVersion: choice(['sealane.io/v1alpha1']),
    kind: choice(['SiteNode']),
    metadata: z.strictObject({ name: dnsSubdomain() }, { error: 'a map' }),
    spec: z.strictObject(
      {
        site: dnsLabel(),
        hubs: list(hub),
        token,
        certificateAuthority: authority,
        state: textThat('a path', (value) => value !== '').optional(),
      },
      { error: 'a map' },
    ),
  },
  { error: 'a map' },
)

/**
 * Undefined if the file is not of kind SiteNode: then it is a site file, or none that can be read. Throws
 * InvalidFileError with all problems and their lines.
 */
export async function readNodeFile(path: string): Promise<NodeFile | undefined> {
  const content = await textOf(path).catch(() => undefined)
  return content === undefined ? undefined : parseNodeFile(path, content)
}

async function textOf(path: string): Promise<string> {
  checkReadable(path)
  return readFile(path, 'utf8')
}

/** Like readNodeFile(), for text. */
export function parseNodeFile(path: string, content: string): NodeFile | undefined {
  const source = readSource(path, content)
  if ('problems' in source) return undefined
  const [document, ...others] = source.documents.filter(({ value }) => value !== undefined)
  if ((document?.value as { readonly kind?: unknown } | null | undefined)?.kind !== 'SiteNode') return undefined
  if (document === undefined || others.length > 0)
    throw new InvalidFileError([{ file: path, line: 1, column: 1, reason: 'expected one document of kind SiteNode' }])
  const checked = schema.safeParse(document.value)
  if (!checked.success) throw new InvalidFileError(schemaProblems(path, document, checked.error))
  const { metadata, spec } = checked.data
  const hubs = spec.hubs.flatMap((text) => hostPort(text) ?? [])
  if (hubs.length === 0 || hubs.length > MAX_HUBS) {
    const reason = `spec.hubs: expected 1 to ${MAX_HUBS} addresses`
    throw new InvalidFileError([{ file: path, ...document.place(['spec', 'hubs']), reason }])
  }
  const file = resolve(path)
  const { site, certificateAuthority } = spec
  const state = resolve(dirname(file), spec.state ?? './state')
  return { file, node: metadata.name, site, hubs, token: spec.token, certificateAuthority, state }
}

/** The text of a file; `hubs` are `address:port`. */
export function formatNodeFile(init: {
  readonly node: string
  readonly site: string
  readonly hubs: readonly string[]
  readonly token: string
  readonly certificateAuthority: string
}): string {
  const { node, ...spec } = init
  return formatYaml({ apiVersion: 'sealane.io/v1alpha1', kind: 'SiteNode', metadata: { name: node }, spec })
}

function hostPort(text: string): HostPort | undefined {
  try {
    const { address, port } = parseAddressPort(text, 'hub')
    return { host: formatAddress(address), port }
  } catch {
    return undefined
  }
}
