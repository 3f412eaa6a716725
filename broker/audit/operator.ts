/** Who runs a command beside the broker, as the operating system says. */
import { userInfo } from 'node:os'
import type { AuditActor } from './audit-event.ts'

/**
 * Takes the environment in which sudo leaves the name of who called it. In a container the uid may have no name. Of a
 * command in the broker's pod it is the pod's user: who ran it there is in the audit log of the API server.
 */
export function localOperator(env: Readonly<Record<string, string | undefined>> = process.env): AuditActor {
  const uid = process.getuid?.()
  const user = userName()
  const sudoUser = env['SUDO_USER']
  return {
    kind: 'operator',
    ...(uid === undefined ? {} : { uid }),
    ...(user === undefined ? {} : { user }),
    ...(sudoUser === undefined || sudoUser === '' ? {} : { sudoUser }),
  }
}

function userName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    // uv_os_get_passwd fails where the uid is in no passwd file.
    return undefined
  }
}
