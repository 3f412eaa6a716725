/** The user of this process, as an operator of a broker. */
import { userInfo } from 'node:os'
import type { Operator } from './admin-api.ts'

/**
 * Takes the environment, in which sudo leaves the name of the calling user. In a container, the uid may have no name. For
 * a command in a pod the user is that of the pod; the audit log of the API server has the caller.
 */
export function localOperator(env: Readonly<Record<string, string | undefined>> = process.env): Operator {
  const uid = process.getuid?.()
  const user = userName()
  const sudoUser = env['SUDO_USER']
  return {
    ...(uid === undefined ? {} : { uid }),
    ...(user === undefined ? {} : { user }),
    ...(sudoUser === undefined || sudoUser === '' ? {} : { sudoUser }),
  }
}

function userName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    // uv_os_get_passwd fails if the uid is in no passwd file.
    return undefined
  }
}
