# The translation server. It has not been built or run here. From the root of the
# repository:
#   docker build -f launch/serve.Dockerfile -t REGISTRY/t2t-jax:serve .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:5000:5000 \
#       -v "$PWD/runs/tiny:/workdir:ro" -v t2t-cache:/cache REGISTRY/t2t-jax:serve
# The volume keeps the compiled programs, so that the next start is a warm one.
FROM python:3.12-slim
ARG EXTRAS=serve
WORKDIR /t2t_jax
COPY setup.py pyproject.toml README.md ./
COPY t2t_jax t2t_jax
# With cuda,serve or gcs,serve as EXTRAS: on a GPU, and from a bucket.
RUN pip install --no-cache-dir ".[${EXTRAS}]" \
    && useradd --uid 10001 --no-create-home t2t_jax \
    && install --directory --owner=10001 /cache
USER 10001
WORKDIR /
ENV T2T_JAX_CACHE=/cache
EXPOSE 5000
# No shell between: SIGTERM must reach Python, so that it answers what it has accepted.
ENTRYPOINT ["python", "-m", "t2t_jax", "serve", "--host=0.0.0.0"]
CMD ["--workdir=/workdir"]
