/* In a container: knocks at the supervisor's socket, wherever one may be, to take the place of a
   process that the operator executes there, with a pipe for a listener; or floods the socket. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int knock(const char *path, int steals)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	uint64_t limit = 1024;
	char body[9] = { steals ? 'H' : 'x' }, space[CMSG_SPACE(sizeof(int))], answer[65536];
	struct iovec io = { body, sizeof body };
	struct msghdr message = { &to, sizeof to, &io, 1, space, sizeof space, 0 };
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	int from = socket(AF_UNIX, SOCK_DGRAM, 0), pair[2], pipes[2], taken = 0;

	strncpy(to.sun_path, path, sizeof to.sun_path - 1);
	memcpy(body + 1, &limit, sizeof limit);
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &pair[1], sizeof(int));
	if (sendmsg(from, &message, MSG_DONTWAIT) >= 0 && steals) {
		close(pair[1]);
		pair[1] = -1;
		if (recv(pair[0], answer, sizeof answer, 0) > 0 && answer[0] != 'R' && !pipe(pipes)) {
			char listener = 'L';
			struct iovec one = { &listener, 1 };
			struct msghdr second = { 0, 0, &one, 1, space, sizeof space, 0 };

			memcpy(CMSG_DATA(rights), &pipes[0], sizeof(int));
			sendmsg(pair[0], &second, 0);
			/* It keeps what it has. */
			taken = 1;
			pause();
		}
	}
	close(from);
	close(pair[0]);
	if (pair[1] >= 0)
		close(pair[1]);
	return taken;
}

int main(int argc, char **argv)
{
	static const char *const places[] = {
		"/dev/.verbgate/socket", "/dev/.verbgate/control", "/run/verbgate/socket",
		"/dev/infiniband/socket", "/dev/infiniband/control",
	};
	int steals = argc > 1 && argv[1][0] == 's';
	time_t end = time(NULL) + 60;

	while (time(NULL) < end) {
		for (unsigned at = 0; at < sizeof places / sizeof *places; at++)
			knock(places[at], steals);
		usleep(steals ? 300 : 50);
	}
	return 0;
}
