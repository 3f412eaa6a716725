/** Builds the published suite of the Multi-Cluster Services API as a program. This tree contains none of its code. */
import { execFile } from 'node:child_process'
import { copyFileSync, existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

export interface SuiteProgramInit {
  /** An existing folder for the program, and for working copies of go.mod and go.sum. */
  readonly directory: string
  /** A checkout of kubernetes-sigs/mcs-api that has the suite. Default: the module proxy. */
  readonly checkout?: string
}

export interface SuiteProgram {
  readonly path: string
  /** The suite and its version, such as "sigs.k8s.io/mcs-api/conformance v0.5.2". */
  readonly origin: string
}

const ROOT_MODULE = 'sigs.k8s.io/mcs-api'
const SUITE_MODULE = `${ROOT_MODULE}/conformance`
const BUILD_DEADLINE_MS = 20 * 60_000

/** Throws with a sentence if the suite cannot be fetched, and with Go's own message if it does not build. */
export async function suiteProgram({ directory, checkout }: SuiteProgramInit): Promise<SuiteProgram> {
  const modfile = join(directory, 'go.mod')
  // go completes its copy of go.sum from the checksum database, because the suite decides which versions it needs.
  for (const name of ['go.mod', 'go.sum']) copyFileSync(join(import.meta.dirname, name), join(directory, name))
  const origin = checkout === undefined ? await download(modfile) : await replace(modfile, resolve(checkout))
  const path = join(directory, 'suite')
  const flags = ['-mod=mod', `-modfile=${modfile}`, '-buildvcs=false', '-ldflags=-s -w', '-o', path]
  await go(['test', '-c', ...flags, '.']).catch((error: unknown) => {
    throw new Error(`the conformance suite does not build:\n${(error as Error).message}`)
  })
  return { path, origin }
}

async function download(modfile: string): Promise<string> {
  const version = /mcs-api\/conformance (v\S+)/.exec(readFileSync(modfile, 'utf8'))?.[1] ?? ''
  const origin = `${SUITE_MODULE} ${version}`
  await go(['mod', 'download', `-modfile=${modfile}`, SUITE_MODULE]).catch(async (error: unknown) => {
    const asked = (await go(['env', 'GOPROXY']).catch(() => '')).trim()
    throw new Error(
      `the conformance suite cannot be downloaded: the module ${origin}, asked of ${asked}:\n` +
        `${(error as Error).message}\n` +
        'Where the module cannot be had, set SEALANE_MCS_SUITE to a checkout of github.com/kubernetes-sigs/mcs-api.',
    )
  })
  return origin
}

async function replace(modfile: string, checkout: string): Promise<string> {
  for (const name of ['go.mod', 'conformance/go.mod']) {
    if (existsSync(join(checkout, name))) continue
    throw new Error(
      `SEALANE_MCS_SUITE is ${checkout}, and there is no ${name} in it: expected a checkout of github.com/kubernetes-sigs/mcs-api`,
    )
  }
  const folders = { [ROOT_MODULE]: checkout, [SUITE_MODULE]: join(checkout, 'conformance') }
  const flags = Object.entries(folders).map(([module, folder]) => `-replace=${module}=${folder}`)
  await go(['mod', 'edit', ...flags, modfile])
  return `${SUITE_MODULE} from a checkout`
}

/** Runs Go in this module, outside any workspace. Returns its output, and throws with what it wrote. */
async function go(argv: readonly string[]): Promise<string> {
  const env = { ...process.env, GOWORK: 'off' }
  const options = { cwd: import.meta.dirname, env, timeout: BUILD_DEADLINE_MS, maxBuffer: 64 << 20 }
  try {
    return (await promisify(execFile)('nice', ['-n', '10', 'go', ...argv], options)).stdout
  } catch (error) {
    const { stderr = '', message } = error as { stderr?: string; message: string }
    throw new Error(stderr.slice(-4000).trim() || message, { cause: error })
  }
}
