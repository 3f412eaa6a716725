/** A CoreDNS for a test, which writes its Corefile as a kubelet does. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type WireMessage, TYPE, query } from '../../dns/wire.ts'
import { askUdp } from '../../dns/dns-server.ts'
import { eventually } from '../../support/eventually.ts'
import { buildGoModule, goVersion } from '../support/build-programs.ts'
import { type Program, makeProgram } from '../support/program.ts'

export interface CoreDns {
  readonly program: Program
  readonly port: number
  writeCorefile(text: string): void
  ask(name: string, type: keyof typeof TYPE): Promise<WireMessage>
}

/** Why no CoreDNS can be started here; undefined if one can. */
export function coreDnsMissing(): string | undefined {
  return goVersion() === undefined ? 'needs Go to build CoreDNS' : undefined
}

/** The path of the program, which is built once. */
export async function coreDnsProgram(): Promise<string> {
  const { coredns = '' } = await buildGoModule(import.meta.dirname)
  return coredns
}

/** Starts a CoreDNS on `port` of 127.0.0.1, and waits until it answers. The Corefile must make it listen there. */
export async function startCoreDns(init: {
  readonly name: string
  readonly directory: string
  readonly port: number
  readonly corefile: string
}): Promise<CoreDns> {
  const { name, port } = init
  const directory = join(init.directory, name)
  mkdirSync(directory)
  const file = join(directory, 'Corefile')
  const program = makeProgram({ name, path: await coreDnsProgram(), args: ['-conf', file], directory })
  const coreDns: CoreDns = {
    program,
    port,
    writeCorefile(text) {
      writeFileSync(`${file}.new`, text)
      renameSync(`${file}.new`, file)
    },
    ask: (name, type) => askUdp(port, query(name, { type: TYPE[type], edns: { size: 4096 } })),
  }
  coreDns.writeCorefile(init.corefile)
  program.start()
  await eventually(
    async () => {
      if (program.failure !== undefined) throw new Error(`${name} ${program.failure}: ${program.log()}`)
      const { flags } = await askUdp(port, query('cluster.local.', { type: TYPE.SOA }), 500)
      if (!flags.endsWith('NOERROR')) throw new Error(`${flags}: ${program.log()}`)
      return true
    },
    { deadlineMs: 30_000, say: `${name} answers` },
  )
  return coreDns
}
