/** The process of a console that runs in a cluster: log, status page, and a certificate of its own. */
import {
  certificateToPem,
  createCa,
  createKey,
  createServerCertificate,
  keyToPem,
} from '../../protocol/identity/identity.ts'
import type { ComponentDeps } from '../../runtime/runtime.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import { withProcess } from '../compose.ts'

export interface ConsoleProcessInit {
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold
}

export interface ConsoleDeps extends ComponentDeps {
  /** The API server does not verify it: it keeps from reading along. */
  readonly tls: { readonly cert: Buffer; readonly key: Buffer }
}

/** Not ready until `work` calls `started`. Throws what `work` throws. */
export function withConsoleProcess(
  init: ConsoleProcessInit,
  work: (deps: ConsoleDeps, started: () => void) => Promise<void>,
): Promise<void> {
  return withProcess({ name: 'console', ...init }, async (deps, started) => {
    const [key, nowMs] = [createKey(), deps.clock.now()]
    const issuer = await createCa({ clusterset: 'console', key: createKey(), nowMs })
    const { certificate } = await createServerCertificate(issuer, { clusterset: 'console', key, nowMs, hosts: [] })
    const tls = { cert: Buffer.from(certificateToPem(certificate)), key: Buffer.from(keyToPem(key)) }
    await work({ ...deps, tls }, started)
  })
}
